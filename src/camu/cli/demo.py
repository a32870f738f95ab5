"""`camu demo`: the main job on embedded data."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


def demo() -> None:
    """Show a small federation on embedded data: who holds what."""
    from camu.data import federate
    from camu.layers import load_config

    config = load_config(preset="demo")
    federation = federate(config.data, config.fleet.devices, config.run.seed)
    counts = federation.label_counts
    table = Table(title="The federation: samples of each label per device", box=None)
    table.add_column("device", justify="right")
    for label in range(counts.shape[1]):
        table.add_column(str(label), justify="right")
    table.add_column("all", justify="right", style="bold")
    for device, row in enumerate(counts):
        table.add_row(str(device), *(str(n) if n else "." for n in row), str(row.sum()))
    Console().print(table)
