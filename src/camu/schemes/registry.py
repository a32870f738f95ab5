"""The schemes by name, and how one is made from the configuration."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

from camu.config import Config
from camu.errors import InputError, suggest
from camu.planning.plan import Plan
from camu.planning.rotation import rotated
from camu.plugins import import_object, is_plugin, missing_name, user_code
from camu.schemes.contract import Scheme, waits_for_all
from camu.schemes.limits import check_limits
from camu.work import at_most
from camu.world import World

# Module and class of each scheme. Only those that are used are loaded.
CLASSES = {
    "fedavg": ("fedavg", "FedAvg"),
    "wasserstein": ("wasserstein", "WassersteinWeights"),
    "clustered": ("clustered", "Clustered"),
    "compute-rounds": ("compute_rounds", "ComputeRounds"),
    "camu": ("camu", "Camu"),
    "dsc": ("dsc", "Dsc"),
    "local-sgd": ("local_sgd", "LocalSgd"),
    "camu-joint": ("joint", "CamuJoint"),
    "hti": ("hti", "HeterogeneousIntensity"),
    "adaptive-tau": ("adaptive_tau", "AdaptiveTau"),
    "camu-nova": ("camu_nova", "CamuNova"),
    "fedprox": ("fedprox", "FedProx"),
    "scaffold": ("scaffold", "Scaffold"),
    "cluster-scaffold": ("cluster_scaffold", "ClusterScaffold"),
    "fednova": ("nova", "FedNova"),
    "cluster-nova": ("cluster_nova", "ClusterNova"),
    "feddyn": ("feddyn", "FedDyn"),
    "fedavgm": ("fedavgm", "FedAvgM"),
    "fedadam": ("fedadam", "FedAdam"),
    "oort": ("oort", "Oort"),
    "pr-sgd": ("pr_sgd", "ParallelRestartedSgd"),
    "fedbuff": ("fedbuff", "FedBuff"),
    "fedasync": ("fedasync", "FedAsync"),
    "hierfavg": ("hierfavg", "HierFavg"),
    "random-clusters": ("random_clusters", "RandomClusters"),
    "label-kmeans": ("label_kmeans", "LabelKMeans"),
    "fedpaq": ("fedpaq", "FedPaq"),
    "fedlamp": ("fedlamp", "FedLamp"),
    "cost-effective": ("cost_effective", "CostEffective"),
    "two-sided": ("two_sided", "TwoSided"),
    "local-sgd-decay": ("local_sgd_decay", "LocalSgdDecay"),
    "fedsa": ("fedsa", "FedSa"),
    "fedat": ("fedat", "FedAt"),
    "straggler-tiers": ("straggler_tiers", "StragglerTiers"),
    "near-iid-bandit": ("near_iid", "NearIidBandit"),
    "adaptive-batch": ("adaptive_batch", "AdaptiveBatch"),
    "hti-total": ("hti_total", "HtiTotal"),
    "hti-dynamic": ("hti_dynamic", "HtiDynamic"),
    "talk-or-work": ("talk_or_work", "TalkOrWork"),
    "semi-async-clusters": ("semi_async_clusters", "SemiAsyncClusters"),
    "age-scheduling": ("age_scheduling", "AgeScheduling"),
    "width-scaled": ("width_scaled", "WidthScaled"),
    "camu-balanced": ("camu_balanced", "CamuBalanced"),
}


class _Schemes(Mapping[str, type[Scheme]]):
    def __getitem__(self, name: str) -> type[Scheme]:
        module, kind = CLASSES[name]
        found: type[Scheme] = getattr(import_module(f"camu.schemes.{module}"), kind)
        return found

    def __contains__(self, name: object) -> bool:
        return name in CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)


SCHEMES = _Schemes()

# Earlier names that still work.
ALIASES = {"petrel": "compute-rounds"}

# The families of schemes, in the order in which they are shown.
FAMILIES = {
    "reference": "The plainest baselines.",
    "paper": "The configurations of the CAMU paper.",
    "clusters": "Other schemes with clusters as units.",
    "local updates": "How often, at what rate and on how much data devices update.",
    "drift": "Corrections for devices with unlike data or unlike numbers of updates.",
    "server": "Other steps of the server.",
    "selection": "Who takes part in a round.",
    "compression": "Smaller updates.",
    "asynchronous": "Servers that do not wait for everyone.",
    "controls": "Controls that take one idea away.",
}


def find_scheme(name: str) -> type[Scheme]:
    """The class of a scheme, by its name or as ``module:Class``."""
    name = ALIASES.get(name, name)
    if name in SCHEMES:
        return SCHEMES[name]
    if wrong := missing_name(name):
        raise InputError(f"scheme.name = {name}: {wrong}")
    if not is_plugin(name):
        raise InputError(
            f"scheme.name = {name}: no such scheme{suggest(name, [*SCHEMES, *ALIASES])}; there are "
            f"{', '.join(SCHEMES)}, or your own as module:Class"
        )
    found = import_object(name, "scheme.name")
    if not isinstance(found, type):
        raise InputError(f"scheme.name = {name}: this is not a class")
    if not issubclass(found, Scheme):
        raise InputError(
            f"scheme.name = {name}: the class is not a scheme; write "
            f"`class {found.__name__}(camu.Scheme)` and give it a method plan(self, world)"
        )
    if inspect.isabstract(found):
        raise InputError(f"scheme.name = {name}: the class has no method plan(self, world)")
    return found


def make_scheme(config: Config, name: str | None = None) -> Scheme:
    """The configured scheme.

    Its fields come from the keys of [scheme] with the same name, and from scheme.parameters.

    Parameters:
        config: the configuration.
        name: replaces scheme.name: a name of `camu schemes`, or ``module:Class``.

    Returns:
        The scheme.
    """
    name = name or config.scheme.name
    kind = find_scheme(name)
    known = _fields(kind)
    own = config.scheme.parameters
    if name != config.scheme.name:  # they were given for another scheme
        own = {field.name: own[field.name] for field in known if field.name in own}
    _check_parameters(name, own, {field.name for field in known})
    _check_types(known, own)
    offered = config.scheme.model_dump(exclude={"parameters", "name"})
    values = {field.name: offered[field.name] for field in known if field.name in offered} | own
    for field in known:
        required = field.default is MISSING and field.default_factory is MISSING
        if required and field.name not in values:
            raise InputError(f"scheme {name}: set scheme.parameters.{field.name}")
    if SCHEMES.get(kind.name) is kind:
        check_limits(name, values)
    with user_code(f"scheme {name}", kind):
        return kind(**values)


def configs_for(config: Config, names: Sequence[str]) -> dict[str, Config]:
    """A configuration for each of these schemes, with those of scheme.parameters that it has.

    A parameter that none of the schemes has is refused.
    """
    given = config.scheme.parameters
    known = {name: field_names(name) for name in names}
    _check_parameters(", ".join(names), given, set().union(*known.values()))
    return {
        name: config.model_copy(
            update={
                "scheme": config.scheme.model_copy(
                    update={
                        "name": name,
                        "parameters": {k: v for k, v in given.items() if k in known[name]},
                    }
                )
            }
        )
        for name in names
    }


def plan_for(scheme: Scheme, world: World) -> Plan:
    """The scheme's plan for a world; a mistake in a user's own scheme is reported as theirs."""
    ours = type(scheme).__module__.startswith("camu.")
    limit = contextlib.nullcontext() if ours else at_most(world.config.scheme.plan_seconds)
    with user_code(f"scheme {scheme.name}", scheme), limit:
        plan: Any = scheme.plan(world)
    if not isinstance(plan, Plan):
        found = "None" if plan is None else f"a value of type {type(plan).__name__}"
        raise InputError(
            f"scheme {scheme.name}: plan() returned {found}; it must return a Plan, for example "
            "from make_plan(...)"
        )
    # A user's plan may hold units that were changed after make_plan; their costs must follow.
    first = _first_leaders(plan, world)
    priced = first if ours and first is plan else first.repriced(world)
    return priced.slowed(world, waits_for_all(scheme)) if world.config.fleet.dvfs else priced


def _first_leaders(plan: Plan, world: World) -> Plan:
    """The plan with the leaders that begin where leaders take turns."""
    if world.config.clustering.leader != "rotating":
        return plan
    battery = world.devices.battery_joules
    charge = np.where(np.isnan(battery), np.inf, battery)
    return rotated(plan, world, charge, np.zeros(len(battery)), np.zeros(len(battery), dtype=bool))


def describe(name: str, kind: type[Any]) -> dict[str, Any]:
    """Name, family, first sentence, citation, what differs from it, and parameters of a scheme."""
    sentence = (inspect.getdoc(kind) or "").split("\n")[0]
    return {
        "name": name,
        "family": getattr(kind, "family", ""),
        "sentence": sentence,
        "citation": getattr(kind, "citation", ""),
        "simplified": list(getattr(kind, "simplified", ())),
        "choices": list(getattr(kind, "choices", ())),
        "aliases": [old for old, new in ALIASES.items() if new == name],
        "parameters": {field.name: field.default for field in _fields(kind)},
    }


def field_names(name: str) -> set[str]:
    """The names of a scheme's parameters."""
    return {field.name for field in _fields(find_scheme(name))}


def _fields(kind: type[Any]) -> list[Field[Any]]:
    """The parameters of a scheme: the fields of its dataclass."""
    return [field for field in fields(kind) if field.init] if is_dataclass(kind) else []


_SIMPLE: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "None": (type(None),),
}


def _check_types(known: Sequence[Field[Any]], given: Mapping[str, object]) -> None:
    """Refuse a value whose field is annotated as bool, int, float, str, and the value is not."""
    for field in known:
        declared = field.type.__name__ if isinstance(field.type, type) else str(field.type)
        names = [name.strip() for name in declared.split("|")]
        if field.name not in given or not _SIMPLE.keys() >= set(names):
            continue
        value = given[field.name]
        if not any(
            isinstance(value, _SIMPLE[name]) and (name == "bool" or not isinstance(value, bool))
            for name in names
        ):
            raise InputError(
                f"scheme.parameters.{field.name} = {value!r}: this is not of type {declared}"
            )


def _check_parameters(name: str, given: Mapping[str, object], known: set[str]) -> None:
    for key in given:
        if key not in known:
            raise InputError(
                f"scheme.parameters.{key}: {name} has no such field{suggest(key, known)}; "
                f"its fields are {', '.join(sorted(known)) or 'none'}"
            )
