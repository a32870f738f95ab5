"""Sorts runs into worlds and schemes: varied keys become labels, seeds become a sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from camu.experiments.comparison import UNGROUPED_ROWS
from camu.report.runs import SavedRun
from camu.report.style import PALETTE
from camu.schemes import ALIASES, SCHEMES

_SCHEME_SECTIONS = ("scheme", "contribution", "allocation", "clustering")
_NAMED = ("run.seed", "scheme.name", "data.dataset")
Keys = dict[str, Any]
_ABSENT = object()
_DASHES = ([1, 0], [7, 3], [2, 2], [8, 2, 2, 2])


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


def group_runs(runs: Iterable[SavedRun]) -> list[Group]:
    """Groups in the order of data set, setting and scheme."""
    alike: dict[str, list[SavedRun]] = {}
    keys: dict[str, Keys] = {}
    for run in runs:
        own = run.keys
        name = repr([(key, value) for key, value in own.items() if key != "run.seed"])
        alike.setdefault(name, []).append(run)
        keys.setdefault(name, own)
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
        numbers[place] += 1
        index = numbers[place] - (0 if place else 1)
        dash = list(_DASHES[index // len(PALETTE) % len(_DASHES)])
        found[label] = (PALETTE[index % len(PALETTE)], dash)
    return found


def _family(name: str) -> str:
    """The family of a scheme; that of an own scheme is not known without its code."""
    name = ALIASES.get(name, name)
    return SCHEMES[name].family if name in SCHEMES else "own"


def _told_apart(rows: Mapping[str, Keys], within: tuple[str, ...], scheme: bool) -> dict[str, str]:
    """Words for what differs between rows that are equal in the keys `within`.

    `scheme` chooses between the parameters of schemes and everything else.
    """
    places: dict[tuple[Any, ...], list[str]] = {}
    for name, row in rows.items():
        places.setdefault(tuple(row[key] for key in within), []).append(name)
    words = {}
    for names in places.values():
        # Schemes have parameters of their own, so that not every row has every key.
        differing = [
            key
            for key in dict.fromkeys(key for name in names for key in rows[name])
            if key not in (*_NAMED, *within)
            and (key.partition(".")[0] in _SCHEME_SECTIONS) == scheme
            and len({repr(rows[name].get(key, _ABSENT)) for name in names}) > 1
        ]
        seen: dict[str, list[Any]] = {}
        for name in names:
            parts = [
                f"{key.rpartition('.')[2]}={_say(rows[name][key], seen.setdefault(key, []))}"
                for key in differing
                if key in rows[name]
            ]
            words[name] = " ".join(parts)
    return words


def _say(value: Any, seen: list[Any]) -> str:
    """A value for people; what is too long to show gets a number."""
    if value is None:
        return "unset"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str | int):
        return str(value)
    if value not in seen:
        seen.append(value)
    return f"#{seen.index(value) + 1}"


def _rank(label: str) -> tuple[bool, int, str]:
    name = ALIASES.get(label.partition(" ")[0], label.partition(" ")[0])
    known = list(SCHEMES)
    # Plain schemes take the first colours; variants of one scheme follow.
    return (" " in label, known.index(name) if name in known else len(known), label)


def _order(group: Group) -> tuple[Any, ...]:
    digits = [float(word) for word in _numbers(group.setting)]
    rank = _rank(group.label)
    return (group.dataset, digits, group.setting, rank[1], group.label)


def _numbers(text: str) -> Iterable[str]:
    """The numbers after the equals signs, so that 6 comes before 12."""
    for part in text.split():
        value = part.partition("=")[2]
        if value.replace(".", "", 1).replace("e-", "", 1).isdigit():
            yield value
