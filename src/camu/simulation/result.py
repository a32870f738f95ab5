"""A finished run with its trained model, and the function that gives one: `simulate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from camu import __version__
from camu.arrays import Int64
from camu.config import Config
from camu.data import dataset_spec
from camu.data.catalog import Scaling
from camu.data.own import shape_name
from camu.errors import InputError
from camu.learning.cnn import seeded_cnn
from camu.learning.configured import model_layout
from camu.learning.engine import Engine, Samples
from camu.learning.task import task_of
from camu.learning.weights import Weights
from camu.planning.plan import Plan
from camu.schemes import Scheme, plans
from camu.sealed import check_tensors, write_sealed_tensors
from camu.seeding import derive
from camu.simulation.dry_run import check_trace
from camu.simulation.history import History
from camu.simulation.hooks import check_trainer
from camu.simulation.loop import Loop
from camu.simulation.ray_session import require_ray
from camu.simulation.realtime import RealtimeLoop, on_real_arrivals
from camu.simulation.run import Callback, Run, Trainer
from camu.world import World, build_world, with_data

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run: its history, the plan it ended with, and the trained model.

    Attributes:
        history: accuracy, seconds and joules of every round.
        plan: the plan in the last round.
        config: the configuration of the world.
        weights: the final weights as flat arrays; `model` and `state_dict` give them by layer.
    """

    history: History
    plan: Plan
    config: Config
    weights: Weights

    def model(self) -> torch.nn.Module:
        """The trained model as a module of ordinary torch layers, ready to predict.

        It takes samples as it was trained on, images as floats in [0, 1] of shape (n, channels,
        height, width), gives logits or numbers, and is in evaluation mode.
        """
        from camu.learning.models import seeded_model  # torch takes long to load

        module = seeded_model(self.config)
        self.weights.load_into(module)
        return module.eval()

    def __repr__(self) -> str:
        return f"Result({self.plan!r}, {self.history!r})"

    def _repr_html_(self) -> str:
        """The accuracy curve, the last rounds and the plan, for notebooks."""
        return self.history._repr_html_() + self.plan._repr_html_()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The trained model's tensors by name, as `model()` names them."""
        return dict(self.model().state_dict())


def simulate(
    world: World,
    scheme: Scheme,
    callbacks: Sequence[Callback] = (),
    *,
    plan: Plan | None = None,
) -> Result:
    """Train a scheme in a world until the configured end; the same inputs give the same bits.

    Parameters:
        world: the fleet; samples of the configured data set are dealt to a fleet file's devices.
        scheme: the scheme, for example `camu.schemes.FedSgd()`.
        callbacks: watchers of the run, called in this order.
        plan: used in place of the scheme's own, for example one that was read from a file.

    Returns:
        The history, the last plan and the trained model. Nothing is written to disk.
    """
    if not isinstance(world, World):
        raise InputError("simulate: the first argument is a world; make one with build_world(...)")
    if not isinstance(scheme, Scheme):
        raise InputError(
            "simulate: the second argument is a scheme, for example camu.schemes.Camu() or "
            "camu.make_scheme(config)"
        )
    world = with_data(world)
    plan = plans.plan(scheme, world) if plan is None else plan
    with build_trainer(world) as trainer:
        run = Run.new(world, plan, trainer.initial)
        run_rounds(run, scheme, trainer, callbacks)
    return Result(run.history(), run.plan, world.config, run.weights)


def run_rounds(
    run: Run, scheme: Scheme, trainer: Trainer, callbacks: Sequence[Callback] = ()
) -> None:
    """Run rounds until the configured end, from the first or from where a checkpoint left off."""
    check_trainer(scheme, trainer, run.plan, run.world.config)
    if not run.records:
        check_trace(run.world, scheme, run.plan)
    kind = RealtimeLoop if on_real_arrivals(scheme, trainer) else Loop
    loop = kind(run, scheme, trainer)
    try:
        if not run.records:
            loop.begin()
        run.check_budgets(run.records[-1])  # a resumed run may have reached its end already
        loop.hooks.finished(loop.view(), run)
        for callback in callbacks:
            callback.on_start(run)
        while run.stopped is None:
            record = loop.round()
            run.check_budgets(record)
            for callback in callbacks:
                callback.on_round(run, record)
    except BaseException:
        run.stopped = "failed"
        raise
    finally:
        for callback in callbacks:
            callback.on_end(run, run.history())


def build_trainer(world: World) -> AbstractContextManager[Trainer]:
    """What trains a world's units, as `machine.engine` says: local workers, or actors on Ray."""
    if world.config.machine.engine == "local":
        return build_engine(world)
    require_ray()
    from camu.simulation.ray_trainer import ray_trainer

    return ray_trainer(world.config, *samples_of(world))


def build_engine(world: World) -> Engine:
    """The engine for a world's model and data."""
    return Engine.from_config(world.config, *samples_of(world))


def samples_of(
    world: World,
) -> tuple[Samples, Sequence[Int64], Samples, Sequence[Int64], Scaling | None]:
    """The training samples, each device's indices of them, both for test samples, and the scaling.

    The indices of test samples are there if a metric of devices is asked for.
    """
    federation = with_data(world).federation
    assert federation is not None  # with_data gives one or refuses
    data, config = federation.dataset, world.config
    of_devices = any(metric.of_devices for metric in task_of(config).metrics)
    own = federation.test_indices if of_devices else ()
    rows = judged_by(config, len(data.test_inputs))
    test: Samples = (data.test_inputs[rows], data.test_targets[rows])
    if isinstance(rows, np.ndarray):
        own = tuple(np.searchsorted(rows, part[np.isin(part, rows)]) for part in own)
    return (data.train_inputs, data.train_targets), federation.indices, test, own, data.scaling


def judged_by(config: Config, samples: int) -> Int64 | slice:
    """Which of so many test samples models are judged by."""
    wanted = config.run.eval_samples
    if wanted is None or wanted >= samples:
        return slice(None)
    order = derive(config.run.seed, "evaluation").numpy().permutation(samples)
    return np.sort(order[:wanted])


def scaling_of(world: World) -> Scaling | None:
    """What standardised data were scaled by; of a world without samples, those of its data set."""
    if not world.config.data.standardise:
        return None
    federation = world.federation or with_data(build_world(world.config)).federation
    return None if federation is None else federation.dataset.scaling


def save_model(result: Result, path: Path, scaling: Scaling | None = None) -> None:
    """Write the trained model as safetensors with named tensors.

    The metadata say what samples are like, and what standardised ones are scaled by.
    """
    metadata = {
        "camu": __version__,
        "model": result.config.training.model,
        "samples": shape_name(dataset_spec(result.config.data)),
        "weights_sha256": result.history.weights_sha256,
    }
    if scaling is not None:
        metadata["scaling"] = json.dumps(scaling.to_dict())
    write_sealed_tensors(path, _named_arrays(result), metadata)


def _named_arrays(result: Result) -> dict[str, npt.NDArray[Any]]:
    """The arrays of `Result.state_dict()`."""
    if seeded_cnn(result.config) is None:
        return {name: tensor.numpy(force=True) for name, tensor in result.state_dict().items()}
    arrays: dict[str, npt.NDArray[Any]] = dict(result.weights.tensors())
    if result.config.training.normalisation == "batch":  # torch's layer counts batches; camu not
        arrays["norm.num_batches_tracked"] = np.array(0, dtype=np.int64)
    return arrays


@dataclass(frozen=True, eq=False)
class Start:
    """The weights that a run begins with, and their digest."""

    weights: Weights
    sha256: str


def read_start(path: Path, config: Config) -> Start:
    """The model in a file that a run of camu wrote; it must fit the configured model."""
    if not path.is_file():
        raise InputError(f"--start {path}: there is no such file; give a run's model.safetensors")
    check_tensors(path, "give the model.safetensors of a run with --start")
    try:
        weights = Weights.from_tensors(load_file(path), model_layout(config))
    except (SafetensorError, OSError) as error:
        raise InputError(f"--start {path}: cannot be read ({error})") from None
    except InputError as error:
        raise InputError(
            f"--start {path}: does not fit training.model = {config.training.model} on "
            f"data.dataset = {config.data.dataset} ({error})"
        ) from None
    return Start(weights, weights.sha256())
