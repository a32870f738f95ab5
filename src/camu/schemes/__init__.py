"""The schemes, one file each, reading like its paper; their contract and their registry."""

# What is imported here is what users import from camu.schemes, and what files of schemes need.
# mypy: implicit-reexport

from camu.learning.job import LocalRule, OwnTraining
from camu.planning.codecs import Part, Quantised, Raw, Sparse
from camu.planning.contribution import extra_updates
from camu.planning.groups import Groups, assess, clusters, make_plan, single_devices
from camu.planning.plan import Plan
from camu.planning.unit import Unit
from camu.schemes.aggregation import add_updates, mix_models
from camu.schemes.catalogue import *
from camu.schemes.contract import Pilot, Scheme
from camu.schemes.registry import describe, find_scheme, make_scheme
from camu.schemes.view import Arrival, State, View
