"""`camu measure`: how long a training step takes here, as the profile of a board."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camu.cli.console import number_table, plain_console, print_table, warn
from camu.cli.guard import print_json
from camu.cli.options import ConfigFile, Json, Preset, Settings, check_outputs, resolve, to_file
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.bench.measure import Step
    from camu.config import Config

Watts = Annotated[float | None, typer.Option(metavar="W", min=0, max=1e6)]


def measure(
    model: Annotated[
        str, typer.Argument(help="As training.model: cnn, mlp, gru, or your own as module:Class.")
    ],
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", metavar="NAME", help="Whose shape samples have [default: mnist]"),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", metavar="N", min=2, max=100_000, help="Samples of a step.")
    ] = 32,
    out: Annotated[
        Path | None, to_file("--out", "Write the profile of a board, for fleet.board.")
    ] = None,
    clock: Annotated[
        float | None,
        typer.Option("--cpu-hz", metavar="HZ", min=1, help="Clock [default: what the system says]"),
    ] = None,
    idle_watts: Watts = None,
    busy_watts: Watts = None,
    predict: Annotated[
        str | None,
        typer.Option(
            "--predict", metavar="MODEL,MODEL", help="Also time these, and predict them from MODEL."
        ),
    ] = None,
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Time a training step of a model on one core of this machine, by camu's own kernel.

    Samples are made up. --out writes a profile that fleet.board, or the column board of a fleet
    file, takes: FLOPs per second, by the model's counted FLOPs. No watts are measured; give
    --idle-watts and --busy-watts if you know them.
    """
    from camu.bench.measure import cpu_hz, profile_text, time_step
    from camu.files import write_text
    from camu.world.boards import find_board

    if (idle_watts is None) != (busy_watts is None):
        raise InputError("--idle-watts, --busy-watts: give both or neither")
    models = [model, *((one.strip() for one in predict.split(",")) if predict else ())]
    configs = [_config(file, preset, settings, name, dataset) for name in models]
    check_outputs([out], configs[0], file)
    hertz = clock or cpu_hz()
    if out is not None and hertz is None:
        raise InputError("--cpu-hz: this machine does not say its clock; give it, such as 2.4e9")
    steps = [time_step(config, samples) for config in configs]
    if out is not None and hertz is not None:
        write_text(out, profile_text(steps[0], hertz, (idle_watts, busy_watts)))
        find_board(str(out), "--out")
    by_parts = _by_parts(configs, samples)
    if as_json:
        print_json([_document(*pair, steps[0]) for pair in zip(steps, by_parts, strict=True)])
    else:
        _show(steps, by_parts, out)
    if out is not None and idle_watts is None:
        _warn_of_watts(out)


def _warn_of_watts(out: Path) -> None:
    warn(
        f"{out}: no watts were given, so devices with this profile get fleet.idle_watts, "
        "fleet.static_watts and fleet.capacitance"
    )


def _config(
    file: Path | None,
    preset: str | None,
    settings: list[str] | None,
    model: str,
    dataset: str | None,
) -> Config:
    """The configuration with this model; without any other word, on data like MNIST's."""
    usual = "mnist" if file is None and preset is None and not settings else None
    named = {"training.model": model, "data.dataset": dataset or usual}
    return resolve(file, preset, settings, overrides=named)


def _by_parts(configs: list[Config], samples: int) -> list[float | None]:
    """The seconds of each step by the operations that it consists of; None: nobody asked."""
    from camu.bench.predict import costs_of_parts, parts_of_step

    if len(configs) == 1:
        return [None]
    costs = costs_of_parts(samples)
    return [float(parts_of_step(config, samples) @ costs) for config in configs]


def _document(step: Step, by_parts: float | None, reference: Step) -> dict[str, Any]:
    """A step as plain data."""
    return {
        **asdict(step),
        "flops_per_second": step.flops_per_second,
        "sample_seconds": step.sample_seconds,
        "seconds_by_flops": reference.predicted_seconds(step.flops),
        "seconds_by_parts": by_parts,
    }


def _show(steps: list[Step], by_parts: list[float | None], out: Path | None) -> None:
    """The measured step as sentences, and all of them as a table with what is predicted."""
    first, *others = steps
    console = plain_console()
    console.print(
        f"{first.model} on {first.dataset}: a step of {first.samples} samples takes "
        f"{1e3 * first.seconds:.4g} ms on one core ({first.kernel}), {first.sample_seconds:.4g} s "
        f"per sample.\n{first.flops:.4g} FLOPs per sample make "
        f"{first.flops_per_second / 1e9:.4g} GFLOP/s.",
        highlight=False,
    )
    if out is not None:
        console.print(f"profile: {out}", highlight=False)
    if not others:
        return
    names = ("model", "FLOPs", "measured ms", "by FLOPs", "error %", "by parts", "error %")
    table = number_table(names, text=("model",))
    by_flops = [first.predicted_seconds(step.flops) for step in steps]
    for step, *predicted in zip(steps, by_flops, by_parts, strict=True):
        cells = [cell for seconds in predicted for cell in _cells(seconds, step)]
        name = step.model.rpartition(":")[2]
        table.add_row(name, f"{step.flops:.4g}", f"{1e3 * step.seconds:.4g}", *cells)
    print_table(table, console)
    typical = _median_error(by_flops[1:], others)
    console.print(f"by FLOPs: at the FLOP/s of {first.model}; median error {typical:.0f} %.")
    known = [seconds for seconds in by_parts if seconds is not None]
    console.print(
        "by parts: the operations of a step, at costs fitted to other networks, which were timed "
        f"for it; median error {_median_error(known, steps):.0f} %."
    )


def _cells(seconds: float | None, step: Step) -> tuple[str, str]:
    """A prediction in milliseconds, and its error in percent."""
    if seconds is None:
        return "-", "-"
    return f"{1e3 * seconds:.4g}", f"{100 * (seconds / step.seconds - 1):+.0f}"


def _median_error(predicted: list[float], steps: list[Step]) -> float:
    """The median of the absolute errors in percent."""
    pairs = zip(predicted, steps, strict=True)
    return 100 * statistics.median(abs(one / step.seconds - 1) for one, step in pairs)
