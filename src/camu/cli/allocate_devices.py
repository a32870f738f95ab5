"""The tables of `camu allocate` for problems per device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from camu.cli.console import number_table, print_table

if TYPE_CHECKING:
    from camu.allocation.device_answer import DeviceAnswer
    from camu.allocation.device_problem import DeviceProblem

MOST_ROWS = 40
_COLUMNS = {  # of the answer: title, factor, digits
    "block": ("block", 1.0, "{:.0f}"),
    "bandwidth_hz": ("kHz", 1e-3, "{:.4g}"),
    "power_watts": ("W", 1.0, "{:.4g}"),
    "cpu_hz": ("GHz", 1e-9, "{:.4g}"),
    "device_seconds": ("s", 1.0, "{:.4g}"),
    "device_joules": ("J", 1.0, "{:.4g}"),
    "packet_error": ("packet error", 1.0, "{:.4g}"),
}
_OBJECTIVES = {
    "ofdma-energy": "least energy {:.6g} J",
    "ofdma-time": "shortest round {:.6g} s",
    "fedl": "energy and priced seconds {:.6g} J",
    "resource-blocks": "expected samples that do not arrive {:.6g}",
}


def show_devices(problem: DeviceProblem, answer: DeviceAnswer, console: Console) -> None:
    """Print what each device gets, the objective, and how good it is."""
    shown = {name: own for name, own in _COLUMNS.items() if name in answer.columns}
    rows = []
    for k in range(min(problem.size, MOST_ROWS)):
        values = ((float(getattr(answer, name)[k]), own) for name, own in shown.items())
        cells = (form.format(value * factor) for value, (_, factor, form) in values)
        rows.append((str(k), *cells))
    print_table(number_table(("device", *(own[0] for own in shown.values())), rows), console)
    if problem.size > MOST_ROWS:
        console.print(f"... and {problem.size - MOST_ROWS} more; --json lists all.")
    console.print(
        f"\n{answer.kind}: {_OBJECTIVES[answer.kind].format(answer.objective)}, no answer is below "
        f"{answer.lower_bound:.6g} (gap {answer.gap:.2g}); {answer.seconds:.3g} s.\n"
        f"A round takes {answer.round_seconds:.4g} s and {answer.energy_joules:.4g} J.\n"
        f"Binding: {', '.join(answer.binding) or 'nothing'}.",
        soft_wrap=True,
    )
