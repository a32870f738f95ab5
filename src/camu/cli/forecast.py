"""`camu forecast`: rounds, joules, seconds and megabytes to a target score, for each scheme."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from camu.cli.compare import Schemes, Seeds, run_schemes
from camu.cli.console import number_table, plain_console, print_table
from camu.cli.guard import print_json
from camu.cli.options import (
    Address,
    ConfigFile,
    Fleet,
    Json,
    Preset,
    Settings,
    Snr,
    check_target,
    fleet_files,
    resolve,
    target,
    to_folder,
)

if TYPE_CHECKING:
    from camu.config import Config
    from camu.experiments.forecast import Forecast
    from camu.experiments.scheduler import FinishedRun
    from camu.learning.metrics import Metric

EVALUATIONS = 30  # at least so many of a run, or every round


ForecastOut = Annotated[
    Path | None, to_folder("--out", "Where runs are kept [default: runs/forecast].")
]


def forecast(
    target: Annotated[
        float,
        typer.Option("--target", parser=target, metavar="SCORE", help="As 0.9 for 90 % accuracy."),
    ],
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    fleet: Fleet = None,
    snr: Snr = None,
    schemes: Schemes = "fedsgd,clustered,camu",
    seeds: Seeds = 3,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="N", min=1, help="Rounds per run [default: run.rounds]."),
    ] = None,
    out: ForecastOut = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Say what a target score costs each scheme, from short runs on your fleet.

    The score is the first of training.metrics. Every scheme is trained with every seed. If all runs
    reach the target, the cost is measured. Otherwise score = a - b (r + 1)^-c (a + b (r + 1)^-c
    where lower is better) is fitted to the mean over seeds after r rounds and continued, with a
    limit a or, for shares, with a = 1, whichever predicts better: fitted to the first 60 % of the
    evaluations, the model must predict the others. A run is evaluated at least 30 times. Intervals
    are 95 % over seeds; those of the model are widened by the error of that prediction.
    """
    from camu.experiments.compare import by_scheme
    from camu.experiments.forecast import forecast as from_runs

    config = resolve(file, preset, settings, overrides=fleet_files(fleet, snr))
    check_target(config, target)
    folder = out or Path("runs/forecast")
    done = short_runs("forecast", config, schemes, rounds, seeds, folder, address)
    found = from_runs(by_scheme(done), target)
    carbon = {row.scheme: grams for row in found if (grams := _co2_grams(row, config)) is not None}
    if as_json:
        rows = [
            {**asdict(row), **({"co2_grams": carbon[row.scheme]} if row.scheme in carbon else {})}
            for row in found
        ]
        numbers = [config.run.seed + number for number in range(seeds)]
        metric = done[0].history.metric.name
        print_json({"target": target, "metric": metric, "seeds": numbers, "schemes": rows})
        return
    show_forecast(found, target, done[0].history.metric, plain_console())
    for name, grams in carbon.items():
        print(f"{name}: {grams:.3g} g of CO2 until then")
    print(f"all runs are in {folder}")


def short_runs(
    command: str,
    config: Config,
    schemes: str,
    rounds: int | None,
    seeds: int,
    folder: Path,
    address: str | None = None,
) -> list[FinishedRun]:
    """Runs of so many rounds (by default run.rounds), evaluated often enough for a model."""
    length = rounds or config.run.rounds
    often = min(config.run.eval_every, max(1, length // EVALUATIONS))
    config = config.replace({"run.target": None, "run.rounds": length, "run.eval_every": often})
    return run_schemes(command, config, schemes, seeds, folder, address)


def _co2_grams(row: Forecast, config: Config) -> float | None:
    """Of a scheme's mean joules, spent evenly until the target; None if that is not known."""
    from camu.planning.carbon import JOULES_PER_KWH, Grid

    grid = Grid.of(config)
    if grid is None or not row.costs:
        return None
    return row.costs["joules"].mean / JOULES_PER_KWH * grid.mean(row.costs["seconds"].mean)


def show_forecast(rows: list[Forecast], target: float, metric: Metric, console: Console) -> None:
    """A row per scheme, and a sentence about each that did not reach the target."""
    from camu.experiments.forecast import COSTS

    title = f"Cost of {metric.title} {target:.4g} (mean and 95 % interval over seeds)"
    shown = [{key: cost.show() for key, cost in row.costs.items()} for row in rows]
    cells = [
        [row.scheme, row.how, *(costs.get(key, "") for key in COSTS)]
        for row, costs in zip(rows, shown, strict=True)
    ]
    names = ("scheme", "how", "rounds", "joules", "virtual s", "MB")
    print_table(number_table(names, cells, title, text=("scheme", "how")), console)
    for row in rows:
        if row.note:
            console.print(f"{row.scheme}: {row.note}.", highlight=False, soft_wrap=True)
