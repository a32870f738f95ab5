"""The page of published numbers: theirs, ours, the interval, the verdict, and reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from camu.experiments.anchors import verdicts
from camu.experiments.anchors.cells import Anchor, read
from camu.experiments.tables import wrapped

Document = Mapping[str, Any]

_ORDER = (
    verdicts.REPRODUCED,
    verdicts.DIFFERS,
    verdicts.UNDECIDED,
    verdicts.UNINFORMATIVE,
    verdicts.CENSORED,
    verdicts.NOT_RUN,
)


def page(documents: Sequence[Document]) -> str:
    """The page, from the cells as they are kept in JSON."""
    by_anchor: dict[str, list[Document]] = {}
    for own in documents:
        by_anchor.setdefault(own["anchor"], []).append(own)
    folder = resources.files(__package__)
    head, tail = ((folder / f"{name}.md").read_text(encoding="utf-8") for name in ("head", "tail"))
    parts = [head, "\n".join(_summary(documents))]
    parts += ["\n".join(_section(read(name), cells)) for name, cells in by_anchor.items()]
    return wrapped("\n".join([*parts, tail]))


def _summary(documents: Sequence[Document]) -> Iterator[str]:
    counts = Counter(own["verdict"] for own in documents)
    found = ", ".join(f"{counts[word]} {word}" for word in _ORDER if counts[word])
    yield "## Verdicts\n"
    yield f"{len(documents)} cells: {found}.\n"
    tested = [
        own
        for own in documents
        if own["rule"] != "V4" and own["verdict"] in (verdicts.REPRODUCED, verdicts.DIFFERS)
    ]
    if tested:
        outside = sum(own["verdict"] == verdicts.DIFFERS for own in tested)
        low, high = verdicts.outside_by_chance(len(tested))
        yield (
            f"Of {len(tested)} numbers with a decided verdict, {outside} lie outside their 95 % "
            f"interval; if all were true, {0.05 * len(tested):.1f} would by chance "
            f"({low:.0f} to {high:.0f} in 95 % of studies).\n"
        )


def _section(anchor: Anchor, cells: Sequence[Document]) -> Iterator[str]:
    source = anchor.source
    commit = f", at {source['commit']}" if "commit" in source else ""
    yield f"## {anchor.name}: {anchor.title}\n"
    for paragraph in anchor.setting.strip().split("\n\n"):
        yield " ".join(paragraph.split()) + "\n"
    yield f"Source: {source['repository']}, {source['file']}{commit}.\n"
    measures = {str(own["metric"]) for own in cells}
    if len(measures) == 1:
        yield f"Measure: {measures.pop()}.\n"
    several = ["measure"] if measures else []
    titles = ["cell", *several, "published", "ours", "n", "95 % interval", "rule", "verdict"]
    yield "| " + " | ".join(titles) + " |"
    yield "|" + "---|" * len(titles)
    for own in cells:
        yield "| " + " | ".join(_row(own, bool(several))) + " |"
    yield ""
    for text in anchor.differences:
        yield f"- Known difference: {text}."
    for own in cells:
        yield from _reasons(own)
    for text in anchor.notes:
        yield f"- {text}."
    for text in anchor.missing:
        yield f"- Not run: {text}."
    yield ""


def _row(own: Document, with_measure: bool) -> Iterator[str]:
    published, ours, unit = own["published"], own["ours"], own["unit"]
    yield str(own["claim"]).partition(".")[2]
    if with_measure:
        yield str(own["metric"])
    if published["order"]:
        yield str(published["order"])
    else:
        spread = "" if published["spread"] is None else f" ± {published['spread']:g}"
        yield f"{published['mean']:g}{spread}{_unit(unit)}"
    yield "" if ours["mean"] is None else f"{_number(ours['mean'], unit)}{_unit(unit)}"
    yield str(ours["n"]) if ours["n"] else ""
    low, high = ours["interval"]
    yield "" if low is None else f"{_number(low, unit)} to {_number(high, unit)}"
    yield str(own["rule"])
    yield f"**{own['verdict']}**"


def _number(value: float, unit: str) -> str:
    return f"{value:.2f}" if unit in ("%", "points") else f"{value:.4g}"


def _unit(unit: str) -> str:
    return " %" if unit == "%" else f" {unit}" if unit else ""


def _reasons(own: Document) -> Iterator[str]:
    name, unit = str(own["claim"]).partition(".")[2], own["unit"]
    if own["reason"]:
        yield f"- `{name}`, {own['verdict']}: {own['reason']}."
    for control in own["controls"]:
        mean, unchanged = control["mean"], control["unchanged_mean"]
        beside = "" if unchanged is None else f", {_number(unchanged, unit)} without the change"
        yield (
            f"- Control of `{name}`, {control['changed']}: {_number(mean, unit)}{_unit(unit)} "
            f"(n = {len(control['values'])}){beside}."
        )
