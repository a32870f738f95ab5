"""Finds and reads run directories, and sorts runs into worlds and schemes.

Varied keys become labels, and seeds become a sample. Runs may still go on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from camu.config import Config, keys_affecting
from camu.errors import InputError
from camu.experiments.comparison import UNGROUPED_ROWS
from camu.experiments.statistics import Verdict
from camu.files import read_json
from camu.learning.metrics import Metric
from camu.planning.plan import Plan
from camu.report.rows import links_of
from camu.report.style import PALETTE
from camu.schemes import ALIASES, SCHEMES
from camu.simulation.directory import RunDirectory
from camu.simulation.history import History, Record
from camu.simulation.ledger import DeviceEnergy
from camu.simulation.run import Callback, Run
from camu.world import Links, World

_EXPECTED = (
    "give a run directory (config.toml, plan.json, rounds.jsonl, summary.json), as `camu run` "
    "writes it, or a directory of such directories"
)
_VERDICTS = "verdicts.json"
_VERDICT_LIST = TypeAdapter(list[Verdict])
_SCHEME_SECTIONS = ("scheme", "contribution", "allocation", "clustering")
_NAMED = ("run.seed", "scheme.name", "data.dataset")  # every label or page has them
_DASHES = ([1, 0], [7, 3], [2, 2], [8, 2, 2, 2])


@dataclass(frozen=True, eq=False)
class SavedRun:
    """One run as far as it got."""

    path: Path
    config: Config
    records: tuple[Record, ...]  # those with a score, at least one
    last: Record
    finished: bool

    @classmethod
    def ended(cls, path: Path, config: Config, history: History, **known: Any) -> SavedRun:
        """A run whose history is in memory, as may be its `plan` and its `links`.

        What is not known is read from the directory when it is first asked for.
        """
        run = cls(path, config, tuple(history.evaluated), history.final, finished=True)
        vars(run).update(devices=history.devices, **known)
        return run

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.config.run.seed

    @cached_property
    def keys(self) -> dict[str, Any]:
        """The keys of the configuration that decide the run's result, with their values."""
        decide = keys_affecting("result", "stopping")
        found = {key: value for key, value in self.config.flat().items() if key in decide}
        own = found.pop("scheme.parameters")
        return found | {f"scheme.parameters.{name}": value for name, value in own.items()}

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The plan that was run."""
        return RunDirectory(self.path).read_plan_document()

    @cached_property
    def devices(self) -> DeviceEnergy | None:
        """The joules of every device; None before the end of the run."""
        return RunDirectory(self.path).read_devices()

    @cached_property
    def links(self) -> Links | None:
        """The links of the run's world; None where they cannot be rebuilt."""
        return links_of(self.config, self.plan)

    @property
    def ppo(self) -> dict[str, Any] | None:
        """How PPO learned: learning_curve and lower_bound, where the plan was found by it."""
        allocation = self.plan.get("allocation")
        return allocation if allocation and "learning_curve" in allocation else None


class KeptRun(Callback):
    """Keeps the world and the plan of a run, so that its report need not read them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: tuple[Plan, World] | None = None

    def on_start(self, run: Run) -> None:
        """Keep them as they are before the first round."""
        self.kept = (run.plan, run.world)

    def ended(self, history: History) -> SavedRun | None:
        """The run for its report; None if it did not start."""
        if self.kept is None:
            return None
        plan, world = self.kept
        known = {"plan": plan.to_dict(world), "links": world.links}
        return SavedRun.ended(self.path, world.config, history, **known)


@dataclass(frozen=True)
class Findings:
    """Everything a page shows: runs, verdicts, and the runs that are left out."""

    runs: tuple[SavedRun, ...]
    verdicts: tuple[Verdict, ...]
    skipped: tuple[Path, ...]  # begun, but without a round so far


def read_runs(paths: Sequence[Path | SavedRun]) -> Findings:
    """These runs, and those and the verdicts in directories, at any depth, each run once."""
    runs: dict[Path, SavedRun] = {}
    skipped: dict[Path, None] = {}
    verdicts: list[Verdict] = []
    for path in dict.fromkeys(paths):
        if isinstance(path, SavedRun):
            runs[path.path.resolve()] = path
            continue
        found = list(_run_directories(path))
        own = _read_verdicts(path / _VERDICTS)
        verdicts += own
        for folder in found:
            if folder.resolve() in runs:  # it was given as it is in memory
                continue
            run = _read_run(folder, must_have_begun=folder == path)
            if run is None:
                skipped[folder] = None
            else:
                runs[folder.resolve()] = run
        if not found and not own:
            raise InputError(f"{path}: no run is here; {_EXPECTED}")
    if not runs and not verdicts:
        first = next(iter(skipped))
        raise InputError(f"{first}: the run has not finished a round yet; {_EXPECTED}")
    return Findings(tuple(_one_per_seed(runs.values())), tuple(verdicts), tuple(skipped))


def _run_directories(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise InputError(f"{path}: {what}; {_EXPECTED}")
    if RunDirectory(path).exists():
        yield path
        return
    # A study also keeps the runs of its learning-rate sweep, which no verdict uses.
    study = (path / _VERDICTS).exists() and (path / "runs").is_dir()
    below = path / "runs" if study else path
    yield from sorted(file.parent for file in below.rglob("config.toml"))


def _read_run(path: Path, must_have_begun: bool) -> SavedRun | None:
    """The run; None during planning, which is an error if the user named the directory."""
    directory = RunDirectory(path)
    for file in (directory.plan, directory.rounds):
        if not file.exists():
            if must_have_begun:
                raise InputError(f"{path}: there is no {file.name}; {_EXPECTED}")
            return None
    config, finished = directory.read_config(), directory.finished()
    records = directory.read_records()
    evaluated = tuple(record for record in records if record.score is not None)
    if evaluated:
        return SavedRun(path, config, evaluated, records[-1], finished)
    if directory.rounds.stat().st_size and must_have_begun:
        raise InputError(
            f"{directory.rounds}: expected a line of JSON per round, as `camu run` writes it"
        )
    return None


def _one_per_seed(runs: Iterable[SavedRun]) -> Iterable[SavedRun]:
    """Of runs with the same configuration and seed the longest, of equal ones the latest.

    Copies are not counted twice, and a run that was repeated replaces the earlier one.
    """
    longest: dict[str, SavedRun] = {}
    for run in runs:
        known = longest.setdefault(repr(run.keys), run)
        if known is not run and _age(run) > _age(known):
            longest[repr(run.keys)] = run
    return longest.values()


def _age(run: SavedRun) -> tuple[int, float]:
    return run.last.round, RunDirectory(run.path).rounds.stat().st_mtime


def _read_verdicts(path: Path) -> list[Verdict]:
    if not path.exists():
        return []
    try:
        return _VERDICT_LIST.validate_python(read_json(path, "the verdicts of `camu reproduce`"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise InputError(
            f"{path}: {where}: {first['msg']}; expected a list of objects with claim, dataset, "
            "statement, unit, mean, low, high, n, verdict and paper"
        ) from None


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone."""

    dataset: str
    setting: str  # what else differs between the worlds of this data set; "" where nothing does
    label: str  # the scheme, and which of its parameters differ
    family: str
    runs: tuple[SavedRun, ...]  # by seed

    @property
    def counted(self) -> tuple[SavedRun, ...]:
        """The runs that statistics use: the finished ones, or all if none has finished."""
        return tuple(run for run in self.runs if run.finished) or self.runs

    @property
    def metric(self) -> Metric:
        """What its models are judged by."""
        return self.runs[0].last.judged


def group_runs(runs: Iterable[SavedRun]) -> list[Group]:
    """Groups in the order of data set, setting and scheme."""
    alike: dict[str, list[SavedRun]] = {}
    for run in runs:
        same = {key: value for key, value in run.keys.items() if key != "run.seed"}
        alike.setdefault(repr(same), []).append(run)
    keys = {name: members[0].keys for name, members in alike.items()}
    settings = _told_apart(keys, ("data.dataset",), scheme=False)
    labels = _told_apart(
        {name: {**own, "setting": settings[name]} for name, own in keys.items()},
        ("data.dataset", "setting", "scheme.name"),
        scheme=True,
    )
    groups = [
        Group(
            dataset=keys[name]["data.dataset"],
            setting=settings[name],
            label=" ".join(filter(None, (keys[name]["scheme.name"], labels[name]))),
            family=_family(keys[name]["scheme.name"]),
            runs=tuple(sorted(members, key=lambda run: run.seed)),
        )
        for name, members in alike.items()
    ]
    return sorted(groups, key=_order)


def _family(name: str) -> str:
    """The family of a scheme; that of an own scheme is not known without its code."""
    name = ALIASES.get(name, name)
    return SCHEMES[name].family if name in SCHEMES else "own"


def _told_apart(
    rows: Mapping[str, Mapping[str, Any]], within: tuple[str, ...], scheme: bool
) -> dict[str, str]:
    """Words for what differs between rows that are equal in the keys `within`.

    `scheme` chooses between the parameters of schemes and everything else.
    """
    places: dict[tuple[Any, ...], list[str]] = {}
    for name, row in rows.items():
        places.setdefault(tuple(row[key] for key in within), []).append(name)
    words = {}
    for names in places.values():
        # Schemes have parameters of their own, so that not every row has every key.
        values = {
            key: list(dict.fromkeys(repr(rows[name].get(key, ...)) for name in names))
            for key in dict.fromkeys(key for name in names for key in rows[name])
            if key not in (*_NAMED, *within)
            and (key.partition(".")[0] in _SCHEME_SECTIONS) == scheme
        }
        for name in names:
            row = rows[name]
            words[name] = " ".join(
                f"{key.rpartition('.')[2]}={_say(row[key], known.index(repr(row[key])))}"
                for key, known in values.items()
                if len(known) > 1 and key in row
            )
    return words


def _say(value: Any, number: int) -> str:
    """A value for people; what is too long to show gets a number."""
    if value is None:
        return "unset"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str | int) else f"#{number + 1}"


def _rank(label: str) -> tuple[bool, int, str]:
    """Plain schemes come first, in the order of the registry; variants of schemes follow."""
    name, _, varied = label.partition(" ")
    known = list(SCHEMES)
    name = ALIASES.get(name, name)
    return (bool(varied), known.index(name) if name in known else len(known), label)


def _order(group: Group) -> tuple[Any, ...]:
    """By numbers of the setting, so that 6 comes before 12, and by scheme."""
    numbers = [float(n) for n in re.findall(r"=(\d+\.?\d*(?:e-\d+)?)(?= |$)", group.setting)]
    return (group.dataset, numbers, group.setting, *_rank(group.label)[1:])


def looks(groups: Iterable[Group]) -> dict[str, tuple[str, list[int]]]:
    """A colour and a dash for every label, the same in all charts.

    Where there are many labels, charts show one family at a time next to the first scheme; labels
    of a family then differ from each other and from the first.
    """
    ordered = sorted(groups, key=lambda group: _rank(group.label))
    families = {group.label: group.family for group in ordered}
    many = len(families) > UNGROUPED_ROWS
    found: dict[str, tuple[str, list[int]]] = {}
    numbers: Counter[str] = Counter()
    for label, family in families.items():
        place = family if many and found else ""
        index = numbers[place] + (1 if place else 0)
        numbers[place] += 1
        dash = list(_DASHES[index // len(PALETTE) % len(_DASHES)])
        found[label] = (PALETTE[index % len(PALETTE)], dash)
    return found
