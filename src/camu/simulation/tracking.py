"""Runs logged to TensorBoard and MLflow, with the extra `tracking`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from camu.errors import InputError
from camu.simulation.history import History, Record
from camu.simulation.run import Callback, Run


class TensorBoard(Callback):
    """Writes TensorBoard events into a directory."""

    def __init__(self, directory: Path) -> None:
        writer = _extra("torch.utils.tensorboard", "run.tensorboard").SummaryWriter
        self.writer = writer(str(directory))

    def on_round(self, run: Run, record: Record) -> None:
        for name, value in _values(record).items():
            self.writer.add_scalar(name, value, record.round)

    def on_end(self, run: Run, history: History) -> None:
        self.writer.close()


class MLflow(Callback):
    """Logs parameters and metrics to MLflow's current tracking store.

    A run is named by its scheme, data set and seed.
    """

    def __init__(self) -> None:
        self.mlflow = _extra("mlflow", "run.mlflow")

    def on_start(self, run: Run) -> None:
        name = f"{run.plan.scheme}-{run.world.config.data.dataset}-seed{run.world.seed}"
        self.mlflow.start_run(run_name=name)
        for section, keys in run.world.config.model_dump(exclude_none=True).items():
            self.mlflow.log_params({f"{section}.{key}": value for key, value in keys.items()})

    def on_round(self, run: Run, record: Record) -> None:
        self.mlflow.log_metrics(_values(record), step=record.round)

    def on_end(self, run: Run, history: History) -> None:
        self.mlflow.end_run()


def _extra(module: str, key: str) -> Any:
    """A module of the extra `tracking`."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"{key}: install the extra with pip install 'camu-fl[tracking]'") from None


def _values(record: Record) -> dict[str, float]:
    values = {
        "virtual_seconds": record.virtual_seconds,
        "joules_compute": record.joules["compute"],
        "joules_transmit": record.joules["transmit"],
    }
    if record.accuracy is not None and record.loss is not None:
        values |= {"accuracy": record.accuracy, "loss": record.loss}
    return values
