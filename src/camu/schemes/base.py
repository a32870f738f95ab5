"""What a scheme is, and how one is found by name or import path."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Protocol, cast, runtime_checkable

from camu.config import Config
from camu.errors import InputError
from camu.planning.plan import Plan
from camu.plugins import import_object
from camu.schemes.adaptive_tau import AdaptiveTau
from camu.schemes.camu import Camu
from camu.schemes.clustered import Clustered
from camu.schemes.dsc import Dsc
from camu.schemes.fedavg import FedAvg
from camu.schemes.hti import HeterogeneousIntensity
from camu.schemes.joint import CamuJoint
from camu.schemes.local_sgd import LocalSgd
from camu.schemes.nova import CamuNova
from camu.schemes.petrel import Petrel
from camu.schemes.wasserstein import WassersteinWeights
from camu.world import World


@runtime_checkable
class Scheme(Protocol):
    """A policy: a frozen dataclass whose fields are its parameters."""

    def plan(self, world: World) -> Plan:
        """Decide about the world."""
        ...


SCHEMES: dict[str, type[Scheme]] = {
    "fedavg": FedAvg,
    "wasserstein": WassersteinWeights,
    "clustered": Clustered,
    "petrel": Petrel,
    "camu": Camu,
    "dsc": Dsc,
    "local-sgd": LocalSgd,
    "camu-joint": CamuJoint,
    "hti": HeterogeneousIntensity,
    "adaptive-tau": AdaptiveTau,
    "camu-nova": CamuNova,
}


def find_scheme(name: str) -> type[Any]:
    """The class of a scheme, by its name or as ``module:Class``."""
    if name in SCHEMES:
        return SCHEMES[name]
    if ":" in name:
        found = import_object(name, "scheme.name")
        if not isinstance(found, type):
            raise InputError(f"scheme.name = {name}: this is not a class")
        if not callable(getattr(found, "plan", None)):
            raise InputError(f"scheme.name = {name}: the class has no method plan(self, world)")
        return found
    close = difflib.get_close_matches(name, SCHEMES, n=1)
    hint = f"; did you mean `{close[0]}`?" if close else ""
    raise InputError(
        f"scheme.name = {name}: no such scheme{hint}; there are {', '.join(SCHEMES)}, "
        "or your own as module:Class"
    )


def make_scheme(config: Config, name: str | None = None) -> Scheme:
    """The configured scheme; its fields come from [scheme] and, if your own, its parameters."""
    name = name or config.scheme.name
    kind = find_scheme(name)
    offered = {
        key: value for key, value in config.scheme.model_dump().items() if key != "parameters"
    }
    own = config.scheme.parameters if name not in SCHEMES else {}
    if not is_dataclass(kind):
        _check_parameters(name, own, set())
        return cast(Scheme, kind())
    known = {field.name for field in fields(kind) if field.init}
    _check_parameters(name, own, known)
    values = {**{key: offered[key] for key in known & offered.keys() - {"name"}}, **own}
    required = [
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING and field.init
    ]
    if missing := [key for key in required if key not in values]:
        raise InputError(f"scheme {name}: set scheme.parameters.{missing[0]}")
    return cast(Scheme, kind(**values))


def describe(name: str, kind: type[Any]) -> dict[str, Any]:
    """Name, first sentence, citation and parameters of a scheme."""
    sentence = (inspect.getdoc(kind) or "").split("\n")[0]
    own = fields(kind) if is_dataclass(kind) else ()
    return {
        "name": name,
        "sentence": sentence,
        "citation": getattr(kind, "citation", ""),
        "parameters": {field.name: field.default for field in own if field.init},
    }


def _check_parameters(name: str, given: Mapping[str, object], known: set[str]) -> None:
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean `{close[0]}`?" if close else ""
            raise InputError(
                f"scheme.parameters.{key}: {name} has no such field{hint}; "
                f"its fields are {', '.join(sorted(known)) or 'none'}"
            )
