"""The answer of a search, for people and in files: which scheme, which numbers, at what cost."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from camu import __version__
from camu.config import Config
from camu.experiments.statistics import Estimate, show_score
from camu.experiments.tuning.ranges import LEAST
from camu.experiments.tuning.search import Plan
from camu.experiments.tuning.trial import Trial
from camu.experiments.tuning.tuned import Tuned
from camu.files import write_json, write_text

RESULT = "tune.json"
UNTUNED = "untuned.toml"
COMPARE = "compare.sh"  # the command that compares the best
COLUMNS = (
    *("scheme", "as configured", "tuned", "gain", "to the first"),
    *("rounds", "joules", "seconds", "MB"),
)
_MOST_COMPARED = 3  # schemes in the command that is suggested


def ranked(found: Sequence[Tuned]) -> list[Tuned]:
    """The best first."""
    return sorted(found, key=lambda one: -one.best.value(one.metric))


def heading(found: Sequence[Tuned]) -> str:
    """What the scores are and where they are from."""
    first = found[0]
    budgets = " and ".join(f"{one.amount:g} {one.axis}" for one in first.budgets)
    mean = ", mean over budgets" if len(first.budgets) > 1 else ""
    seeds = ", ".join(map(str, first.seeds))
    return f"Validation {_lower(first.metric.heading)} at {budgets}{mean} (seeds {seeds})"


def _lower(text: str) -> str:
    return text if text[:2].isupper() else text[0].lower() + text[1:]


def answer_rows(found: Sequence[Tuned]) -> list[list[str]]:
    """A row of `COLUMNS` per scheme, the best first."""
    order = ranked(found)
    return [_row(one, order[0]) for one in order]


def _row(one: Tuned, first: Tuned) -> list[str]:
    behind = None if one is first else first.ahead_of(one.best, first.best)
    costs = one.best.costs
    return [
        one.scheme,
        *(_score(one, one.score(trial)) for trial in (one.untuned, one.best)),
        show_score(one.metric, one.gain, 1),
        show_score(one.metric, behind, 1),
        f"{costs['rounds']:.4g}",
        *(f"{costs[axis]:.4g}" for axis in ("joules", "seconds", "megabytes")),
    ]


def _score(one: Tuned, score: Estimate | None) -> str:
    return "blown up" if score is None else show_score(one.metric, score, 1)


def said(settings: dict[str, Any]) -> str:
    """Settings in words: learning_rate=0.3 local_updates=8."""
    return " ".join(
        f"{key.rpartition('.')[2]}={value:g}"
        if isinstance(value, float)
        else f"{key.rpartition('.')[2]}={value}"
        for key, value in settings.items()
    )


def write_results(
    found: Sequence[Tuned], plans: Sequence[Plan], config: Config, out: Path
) -> list[Path]:
    """Write tune.json, and for each scheme a TOML that run, compare, live and deploy take.

    With several budgets every trial of the front has one too. `config` is what the search began
    with: untuned.toml is the same up to the budgets, for comparisons.
    """
    write_json(out / RESULT, {"schemes": [one.to_dict() for one in ranked(found)]})
    paths = []
    for one, plan in zip(found, plans, strict=True):
        paths.append(out / f"{plan.name}.toml")
        write_text(paths[-1], _toml(one, one.best))
        for trial in one.front if len(one.budgets) > 1 else ():
            write_text(out / f"{plan.name}-trial-{trial.number}.toml", _toml(one, trial))
    write_text(out / UNTUNED, _head(found[0]) + _plain(found, config).to_toml())
    write_text(out / COMPARE, f"{to_compare(found, out)}\n")
    return paths


def result_names(plans: Sequence[Plan]) -> list[str]:
    """The files that are written for any outcome."""
    return [RESULT, UNTUNED, COMPARE, *(f"{plan.name}.toml" for plan in plans)]


def _plain(found: Sequence[Tuned], config: Config) -> Config:
    """The configuration up to the budgets, with nothing tuned."""
    first = found[0].config.run
    least = {key: found[0].config.flat()[key] for key in LEAST.values()}
    common = {**least, "run.rounds": min(one.config.run.rounds for one in found)}
    if first.min_virtual_seconds is None and first.min_megabytes is None:
        # A scheme that ends by itself plans for joules; all others end there too.
        limits = [one.config.run.max_joules for one in found]
        common["run.max_joules"] = max((one for one in limits if one is not None), default=None)
    return config.replace({**common, "data.validation_share": 0.0})


def _toml(one: Tuned, trial: Trial) -> str:
    score = _score(one, one.score(trial))
    unit = " %" if one.metric.share else ""
    about = f"# {one.scheme}, trial {trial.number}: validation {one.metric.title} {score}{unit}\n"
    return _head(one) + about + one.config_of(trial).to_toml()


def _head(one: Tuned) -> str:
    budgets = ", ".join(map(str, one.budgets))
    seeds = ", ".join(map(str, one.seeds))
    return (
        f"# camu {__version__}, camu tune: {len(one.trials)} trials a scheme at {budgets}, "
        f"tuning seeds {seeds}\n"
    )


def to_compare(found: Sequence[Tuned], out: Path) -> str:
    """The command that measures the best on seeds and samples that no trial had."""
    order = ranked(found)[:_MOST_COMPARED]
    words = [one.word for one in order]
    if len(order) == 1:
        words.insert(0, order[0].untuned_word)
    schemes = shlex.quote(",".join(words))
    return f"camu compare -c {shlex.quote(str(out / UNTUNED))} --seeds 5 --schemes {schemes}"
