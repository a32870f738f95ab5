"""Schemes: each turns a world into a plan, in one file that reads like its paper."""

from camu.planning.groups import Groups, assess, clusters, make_plan, single_devices
from camu.planning.plan import Plan, Unit
from camu.schemes.base import SCHEMES, Scheme, describe, find_scheme, make_scheme

__all__ = [
    "SCHEMES",
    "Groups",
    "Plan",
    "Scheme",
    "Unit",
    "assess",
    "clusters",
    "describe",
    "find_scheme",
    "make_plan",
    "make_scheme",
    "single_devices",
]
