"""camu plans, simulates and deploys federated learning over wireless devices.

`camu.__all__` is the public interface. Each name is imported when it is first used, so that
`import camu` is quick and loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.4.0"

__all__ = [
    "Allocation",
    "Callback",
    "CamuError",
    "Config",
    "History",
    "InputError",
    "Plan",
    "Problem",
    "Record",
    "Result",
    "Scheme",
    "Tuned",
    "Unit",
    "World",
    "__version__",
    "assess",
    "build_world",
    "clusters",
    "compare",
    "load_config",
    "make_plan",
    "make_scheme",
    "plan",
    "read_fleet",
    "read_results",
    "read_runs",
    "schemes",
    "simulate",
    "single_devices",
    "solve",
    "tune",
    "write_report",
]

if TYPE_CHECKING:
    from camu import schemes
    from camu.allocation import Allocation, Problem, solve
    from camu.config import Config, load_config
    from camu.errors import CamuError, InputError
    from camu.experiments.compare import compare
    from camu.experiments.parquet import read_results
    from camu.experiments.stored import read_runs
    from camu.experiments.tuning.tune import tune
    from camu.experiments.tuning.tuned import Tuned
    from camu.planning.groups import assess, clusters, make_plan, single_devices
    from camu.planning.plan import Plan
    from camu.planning.unit import Unit
    from camu.report.writing import write_report
    from camu.schemes import Scheme, make_scheme
    from camu.schemes.plans import plan
    from camu.simulation import Callback, History, Record, Result, simulate
    from camu.world import World, build_world, read_fleet
else:
    _NAMES = {
        "camu.allocation": ("Allocation", "Problem", "solve"),
        "camu.config": ("Config", "load_config"),
        "camu.errors": ("CamuError", "InputError"),
        "camu.experiments.compare": ("compare",),
        "camu.experiments.parquet": ("read_results",),
        "camu.experiments.stored": ("read_runs",),
        "camu.experiments.tuning.tune": ("tune",),
        "camu.experiments.tuning.tuned": ("Tuned",),
        "camu.planning.groups": ("assess", "clusters", "make_plan", "single_devices"),
        "camu.planning.plan": ("Plan",),
        "camu.planning.unit": ("Unit",),
        "camu.report.writing": ("write_report",),
        "camu.schemes": ("Scheme", "make_scheme"),
        "camu.schemes.plans": ("plan",),
        "camu.simulation": ("Callback", "History", "Record", "Result", "simulate"),
        "camu.world": ("World", "build_world", "read_fleet"),
    }
    _MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name):
        if name == "schemes":
            return import_module("camu.schemes")
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'camu' has no attribute {name!r}")
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value

    def __dir__():
        return __all__
