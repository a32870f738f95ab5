"""The page of a search: which scheme, with which numbers, at what cost, and what was tried."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from camu import __version__
from camu.experiments.tuning.answer import (
    COLUMNS,
    answer_rows,
    heading,
    ranked,
    said,
    to_compare,
)
from camu.experiments.tuning.trial import Trial
from camu.experiments.tuning.tuned import Tuned
from camu.files import write_text
from camu.learning.metrics import Metric, finite
from camu.report import charts, style
from camu.report.tables import plain_table
from camu.report.writing import PAGE, scripts, template_file
from camu.schemes.tunable import Between, OneOf, Range

Spec = dict[str, Any]
_TEXT = ("scheme", "settings", "state")
_COSTS = ("rounds", "joules", "seconds", "megabytes")


def write_tuning(found: Sequence[Tuned], out: Path) -> Path:
    """Write the page about these searches; it needs no network and no other file."""
    order = ranked(found)
    drawn: dict[str, Spec] = {}
    schemes = [_scheme(place, one, drawn) for place, one in enumerate(order)]
    if len(order) > 1:
        spec = charts.chart("tuning-schemes", _marks(order[0]), width="container")
        spec["height"] = max(80, 26 * len(order))
        drawn["schemes"] = {"spec": spec, "datasets": {"schemes": _scheme_rows(order)}}
    library, script = charts.chart_library(), scripts("points.js", "tune.js")
    text = charts.template("camu.report", "tune.html").render(
        policy=charts.safe(charts.script_policy(library, script)),
        version=__version__,
        title="camu tune",
        lead=_lead(order),
        style=charts.safe(template_file("page.css")),
        heading=heading(order),
        answer=plain_table(
            [*COLUMNS, "settings"],
            [
                [*row, said(one.settings)]
                for row, one in zip(answer_rows(order), order, strict=True)
            ],
            text=_TEXT,
        ),
        command=to_compare(order, out),
        schemes=schemes,
        data=charts.safe(
            charts.embeddable(
                {
                    "themes": {"light": style.theme(), "dark": style.theme(dark=True)},
                    "charts": drawn,
                }
            )
        ),
        library=charts.safe(library),
        script=charts.safe(script),
    )
    page = out / PAGE
    write_text(page, text)
    return page


def _lead(order: Sequence[Tuned]) -> str:
    first = order[0]
    schemes = f"{len(order)} schemes, " if len(order) > 1 else f"{first.scheme}, "
    pruned = sum(trial.pruned for one in order for trial in one.trials)
    given_up = f"; {pruned} given up after their first seeds" if pruned else ""
    return (
        f"{schemes}{len(first.trials)} trials each with {len(first.seeds)} tuning seeds{given_up}."
    )


def _scheme(place: int, one: Tuned, drawn: dict[str, Spec]) -> dict[str, Any]:
    """A scheme's part of the page; its charts are added to those that are drawn."""
    rows, shown = _trial_rows(one), []
    for number, panel in enumerate(_panels(one)):
        own = rows
        if panel.key is not None:
            values = (trial.settings[panel.key] for trial in one.trials)
            own = [{**row, "value": value} for row, value in zip(rows, values, strict=True)]
        spec = charts.chart(panel.chart, {**_marks(one), **panel.marks}, width="container")
        name = f"{place}-{number}"
        drawn[name] = {"spec": {**spec, "height": 260}, "datasets": {"trials": own}}
        wide = number == 0
        shown.append({"id": name, "title": panel.title, "note": panel.note, "wide": wide})
    if one.importances:
        spec = charts.chart("tuning-importance", width="container")
        shares = [{"key": key, "share": share} for key, share in one.importances.items()]
        height = max(60, 28 * len(shares))
        drawn[f"{place}-share"] = {
            "spec": {**spec, "height": height},
            "datasets": {"importances": shares},
        }
        note = "Share of the differences between the trials with all seeds (PED-ANOVA)."
        shown.append({"id": f"{place}-share", "title": "What matters", "note": note, "wide": True})
    names = ["trial", "state", "seeds", *map(str, one.budgets), *_COSTS, "settings"]
    return {
        "name": one.scheme,
        "best": said(one.settings),
        "ranges": "; ".join(f"{key} {found}" for key, found in one.space.items()),
        "charts": shown,
        "trials": plain_table(names, [_cells(one, trial) for trial in one.trials], text=_TEXT),
    }


@dataclass(frozen=True)
class _Panel:
    """A chart of all trials of a scheme."""

    chart: str
    title: str
    note: str
    marks: dict[str, str] = field(default_factory=dict)
    key: str | None = None  # of the setting on its axis


def _panels(one: Tuned) -> list[_Panel]:
    found = [_Panel("tuning-history", "Trials in their order", "The line is the best so far.")]
    if len(one.budgets) > 1:
        titles = [f"validation {one.metric.title} at {budget}" for budget in one.budgets]
        marks = {style.FIRST_BUDGET: titles[0], style.SECOND_BUDGET: titles[1]}
        note = "The line joins trials that none beats at all budgets."
        found.append(_Panel("tuning-front", "What each budget wants", note, marks))
    return found + [
        _Panel(
            _slice(own), f"Score against {key}", f"Searched: {own}.", {style.PARAMETER: key}, key
        )
        for key, own in one.space.items()
    ]


def _cells(one: Tuned, trial: Trial) -> list[str]:
    metric = one.metric
    means = [trial.mean(number, metric) for number in range(len(one.budgets))]
    return [
        *(str(trial.number), _state(one, trial), str(len(trial.scores))),
        *(metric.show(mean) for mean in means),
        *(f"{trial.costs[key]:.4g}" for key in _COSTS),
        said(trial.settings),
    ]


def _state(one: Tuned, trial: Trial) -> str:
    if trial.number == one.best.number:
        return "best"
    if trial.number == 0:
        return "as configured"
    return "given up" if trial.pruned else "all seeds"


def _trial_rows(one: Tuned) -> list[dict[str, Any]]:
    """What charts show of every trial; a model that blew up has no score and is not drawn."""
    metric, front = one.metric, {trial.number for trial in one.front}
    several = len(one.budgets) > 1
    scores = [finite(metric.sign * trial.value(metric)) for trial in one.trials]
    whole = [None if t.pruned else score for t, score in zip(one.trials, scores, strict=True)]
    best = itertools.accumulate(whole, partial(_better, metric))
    return [
        {
            "trial": trial.number,
            "score": score,
            "first": finite(trial.mean(0, metric)),
            "other": finite(trial.mean(1, metric)) if several else None,
            "best": so_far,
            "state": _state(one, trial),
            "seeds": len(trial.scores),
            "front": several and trial.number in front,
            "settings": said(trial.settings),
        }
        for trial, score, so_far in zip(one.trials, scores, best, strict=True)
    ]


def _better(metric: Metric, before: float | None, now: float | None) -> float | None:
    known = [score for score in (before, now) if score is not None]
    return metric.best(known) if known else None


def _slice(found: Range) -> str:
    """The chart of a parameter: on the scale of its range, or with a place for each value."""
    if isinstance(found, OneOf):
        return "tuning-choice"
    assert isinstance(found, Between)
    return "tuning-log" if found.log else "tuning-linear"


def _scheme_rows(order: Sequence[Tuned]) -> list[dict[str, Any]]:
    found = []
    for place, one in enumerate(order):
        scores = [one.score(trial) for trial in (one.untuned, one.best)]
        before, after = (None if score is None else finite(score.mean) for score in scores)
        own = {"scheme": one.scheme, "place": place, "settings": said(one.settings)}
        found.append({**own, "before": before, "after": after})
    return found


def _marks(one: Tuned) -> dict[str, str]:
    title = f"validation {one.metric.title}"
    return {**style.score_marks(one.metric), style.VALIDATION_SCORE: title}
