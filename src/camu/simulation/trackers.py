"""Callbacks by name: TensorBoard, MLflow, Weights & Biases, and the user's own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.errors import InputError
from camu.plugins import import_object, user_code
from camu.simulation.callbacks import Patience
from camu.simulation.history import History, Record
from camu.simulation.ledger import KINDS
from camu.simulation.run import Callback, Run

_KEY = "machine.callbacks"


class TensorBoard(Callback):
    """Writes TensorBoard events into `tensorboard/` of the run directory."""

    def __init__(self, directory: Path) -> None:
        writer = _extra("torch.utils.tensorboard", "tracking").SummaryWriter
        self.writer = writer(str(directory / "tensorboard"))

    def on_round(self, run: Run, record: Record) -> None:
        for name, value in _values(record).items():
            self.writer.add_scalar(name, value, record.round)

    def on_end(self, run: Run, history: History) -> None:
        self.writer.close()


class MLflow(Callback):
    """Logs parameters and metrics to MLflow's current tracking store."""

    def __init__(self, directory: Path) -> None:
        self.mlflow = _extra("mlflow", "tracking")

    def on_start(self, run: Run) -> None:
        self.mlflow.start_run(run_name=_name(run))
        for section, keys in run.world.config.model_dump(exclude_none=True).items():
            self.mlflow.log_params({f"{section}.{key}": value for key, value in keys.items()})

    def on_round(self, run: Run, record: Record) -> None:
        self.mlflow.log_metrics(_values(record), step=record.round)

    def on_end(self, run: Run, history: History) -> None:
        self.mlflow.end_run()


class WeightsAndBiases(Callback):
    """Logs configuration and metrics to Weights & Biases, whose files are in the run directory."""

    def __init__(self, directory: Path) -> None:
        self.wandb, self.directory = _extra("wandb", "wandb"), directory
        self.own: Any = None

    def on_start(self, run: Run) -> None:
        self.own = self.wandb.init(
            name=_name(run), config=dict(run.world.config.flat()), dir=str(self.directory)
        )

    def on_round(self, run: Run, record: Record) -> None:
        self.own.log(_values(record), step=record.round)

    def on_end(self, run: Run, history: History) -> None:
        if self.own is not None:
            self.own.finish()


class Own(Callback):
    """The user's own class, whose errors are named as theirs."""

    def __init__(self, word: str) -> None:
        self.what = f"{_KEY}, {word}"
        kind = import_object(word, _KEY)
        with user_code(self.what, kind, "()"):
            self.callback = kind()
        if not isinstance(self.callback, Callback):
            raise InputError(f"{_KEY} = {word}: make it a class derived from camu.Callback")

    def on_start(self, run: Run) -> None:
        with user_code(self.what, self.callback):
            self.callback.on_start(run)

    def on_round(self, run: Run, record: Record) -> None:
        with user_code(self.what, self.callback):
            self.callback.on_round(run, record)

    def on_end(self, run: Run, history: History) -> None:
        with user_code(self.what, self.callback):
            self.callback.on_end(run, history)


_TRACKERS: dict[str, Callable[[Path], Callback]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


def configured_callbacks(config: Config, directory: Path) -> list[Callback]:
    """The callbacks that a configuration asks for; their files go into the directory."""
    found: list[Callback] = []
    if config.run.patience is not None:
        found.append(Patience(config.run.patience))
    for word in config.machine.callbacks:
        known = _TRACKERS.get(word)
        found.append(Own(word) if known is None else known(directory))
    return found


def _extra(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"{_KEY}: install the extra with pip install 'camu-fl[{extra}]'") from None


def _name(run: Run) -> str:
    """Runs are named by scheme, data set and seed."""
    return f"{run.plan.scheme}-{run.world.config.data.dataset}-seed{run.world.seed}"


def _values(record: Record) -> dict[str, float]:
    values = {
        "virtual_seconds": record.virtual_seconds,
        **{f"joules_{kind}": record.joules.get(kind, 0.0) for kind in KINDS},
        "empty": record.empty,
    }
    found = {"accuracy": record.accuracy, "loss": record.loss, **record.metrics}
    return values | {name: value for name, value in found.items() if value is not None}
