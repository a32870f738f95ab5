"""The compiled kernels: right against torch in double precision, repeatable, and optional."""

from __future__ import annotations

import copy
import ctypes
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from camu.arrays import Int64
from camu.data.batches import Schedule, Schedules
from camu.errors import CamuError, InputError
from camu.learning import native, native_check, native_kernel
from camu.learning.job import Job
from camu.learning.models import PaperCNN
from camu.seeding import derive
from helpers.toys import Toy

needs_kernels = pytest.mark.skipif(
    native.instruction_set() is None, reason="camu was built without compiled kernels"
)
IMAGES = {28: (1, 28, 28), 8: (1, 8, 8), 32: (3, 32, 32)}


def shape_of(model: PaperCNN) -> native.Shape:
    shape = native_kernel.native_shape(model)
    assert shape is not None
    return shape


def model_of(side: int, norm: str, classes: int, seed: int, scale: float) -> PaperCNN:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = PaperCNN(IMAGES[side], classes, norm)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(scale).add_(0.1 * torch.randn_like(parameter))
    return model


def samples_of(side: int, classes: int, count: int, seed: int) -> native.Samples:
    generator = derive(seed, "own-samples", side).numpy()
    images = generator.integers(0, 256, (count, *IMAGES[side]), dtype=np.uint8)
    return native.Samples(images, generator.integers(0, classes, count))


def smallest_margin(model: nn.Module, images: torch.Tensor) -> float:
    """How far a rounding error is from changing which input of a max-pooling or relu counts.

    Relative to the largest input of the layer, as rounding errors are.
    """
    margins = []
    for layer in model:
        largest = images.abs().max().item()
        if isinstance(layer, nn.MaxPool2d):
            cells = functional.unfold(images.flatten(0, 1)[:, None], 2, stride=2)
            two = cells.topk(2, dim=1).values
            margins.append((two[:, 0] - two[:, 1]).min().item() / largest)
        if isinstance(layer, nn.ReLU):
            margins.append(images.abs().min().item() / largest)
        images = layer(images)
    return min(margins)


def torch_gradient(
    model: PaperCNN,
    samples: native.Samples,
    devices: list[np.ndarray],
    shares: list[float],
    dtype: torch.dtype = torch.float64,
) -> tuple[np.ndarray, float]:
    """Gradient and loss by torch, device by device."""
    model = copy.deepcopy(model).to(dtype).train()
    total = torch.zeros((), dtype=dtype)
    for indices, share in zip(devices, shares, strict=True):
        images = torch.from_numpy(samples.images[indices]).to(dtype) / 255
        labels = torch.from_numpy(samples.labels[indices])
        total = total + share * functional.cross_entropy(model(images), labels)
    total.backward()
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()]).numpy(), total.item()


def exact_gradient(
    model: PaperCNN, samples: native.Samples, devices: list[np.ndarray], shares: list[float]
) -> tuple[np.ndarray, float]:
    """In double precision, for cases that single precision can decide."""
    for indices in devices:
        images = torch.from_numpy(samples.images[indices]).double() / 255
        assume(smallest_margin(copy.deepcopy(model).double(), images) > 1e-6)
    exact, loss = torch_gradient(model, samples, devices, shares)
    # Batch norm of a few nearly equal numbers multiplies rounding errors, torch's too.
    single, _ = torch_gradient(model, samples, devices, shares, torch.float32)
    assume(np.abs(single - exact).max() < 4e-6 * max(1.0, np.abs(exact).max()))
    return exact, loss


@needs_kernels
@settings(max_examples=40, deadline=None)
@given(
    side=st.sampled_from(sorted(IMAGES)),
    norm=st.sampled_from(native.NORMS),
    classes=st.integers(2, 30),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([0.5, 1.0, 2.0]),
    instructions=st.sampled_from(native.INSTRUCTION_SETS),
)
def test_gradients_are_those_of_torch_in_double_precision(
    side: int,
    norm: str,
    classes: int,
    sizes: list[int],
    seed: int,
    scale: float,
    instructions: str,
) -> None:
    loaded = native.library()
    assert loaded is not None
    assume(loaded.camu_supports(instructions.encode()))
    model = model_of(side, norm, classes, seed, scale)
    samples = samples_of(side, classes, 60, seed)
    generator = derive(seed, "own-devices").numpy()
    devices = [generator.integers(0, 60, size) for size in sizes]
    shares = (generator.random(len(sizes)) + 0.1).tolist()
    expected, loss = exact_gradient(model, samples, devices, shares)
    parameters = native_kernel.Weights.of(model).parameters
    worker = native.Worker(shape_of(model), instructions)
    found, found_loss = worker.gradient(samples, parameters, devices, shares)
    assert np.abs(found - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())
    # The loss is a difference of logits: below 1e-6, single precision has no digits of it.
    assert found_loss == pytest.approx(loss, rel=1e-5, abs=1e-6)


def schedule_of(batches: list[Int64], steps: list[int]) -> Schedule:
    sizes = np.array([len(batch) for batch in batches], dtype=np.int32)
    return Schedule(np.concatenate(batches), sizes, np.array(steps, dtype=np.int32))


def tie_candidates(layer: nn.Conv2d, inputs: torch.Tensor, generator: np.random.Generator) -> None:
    """Change a weight of each output so that two candidates of a cell differ by less than single
    precision can tell."""
    places = int(inputs.shape[-1]) - 4
    windows = functional.unfold(inputs, layer.kernel_size)[0].T.reshape(places, places, -1)
    for weights in layer.weight.flatten(1):
        left = 0.0
        while not 0 < left < 1e-8 * float(weights.abs().sum() * inputs.abs().max()):
            row, column = (int(place) for place in 2 * generator.integers(0, places // 2, 2))
            cell = windows[row : row + 2, column : column + 2].reshape(4, -1)
            best, other = (cell @ weights.double()).topk(2).indices
            difference = cell[best] - cell[other]
            tap = difference.abs().argmax()
            weights[tap] -= (difference @ weights.double()) / difference[tap]
            left = abs(float(difference @ weights.double()))


@needs_kernels
@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_the_winner_is_right_where_candidates_are_nearly_equal(
    instructions: str, stage: int, seed: int
) -> None:
    model, generator = model_of(28, "none", 10, seed, 1.0), derive(seed, "own-ties").numpy()
    images = 255 * generator.integers(0, 2, (3, *IMAGES[28]), dtype=np.uint8)
    image = torch.from_numpy(images[:1]).double() / 255
    layers = [layer for layer in model if isinstance(layer, nn.Conv2d)]
    with torch.no_grad():
        if stage == 1:
            # What comes before is exact: the kernels multiply weights by 2/9, 1/90 and 2/45.
            for values in (layers[0].weight, layers[0].bias):
                values.copy_(torch.from_numpy(generator.integers(-8, 9, values.shape) * 90 / 4096))
            image = functional.max_pool2d(copy.deepcopy(layers[0]).double()(image), 2)
        tie_candidates(layers[stage], image, generator)
    samples = native.Samples(images, np.array([1, 5, 7]))
    exact = copy.deepcopy(model).double()
    logits = exact(torch.from_numpy(images).double() / 255)
    functional.cross_entropy(logits, torch.from_numpy(samples.labels)).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in exact.parameters()]).numpy()
    worker = native.Worker(shape_of(model), instructions)
    parameters = native_kernel.Weights.of(model).parameters
    found, _ = worker.gradient(samples, parameters, [np.arange(3)], [1.0])
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@needs_kernels
@pytest.mark.parametrize("norm", native.NORMS)
@pytest.mark.parametrize("size", [191, 192, 193, 700])
def test_devices_larger_than_a_pass_are_right(instructions: str, norm: str, size: int) -> None:
    model = model_of(8, norm, 10, 2, 1.0)
    samples = samples_of(8, 10, 900, 3)
    devices = [np.arange(5), np.arange(50, 50 + size), np.arange(7, 30)]
    model64 = copy.deepcopy(model).double()
    losses = [
        functional.cross_entropy(
            model64(torch.from_numpy(samples.images[own]).double() / 255),
            torch.from_numpy(samples.labels[own]),
        )
        for own in devices
    ]
    (0.2 * losses[0] + 0.5 * losses[1] + 0.3 * losses[2]).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in model64.parameters()]).numpy()
    worker = native.Worker(shape_of(model), instructions)
    parameters = native_kernel.Weights.of(model).parameters
    found, _ = worker.gradient(samples, parameters, devices, [0.2, 0.5, 0.3])
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


@needs_kernels
@pytest.mark.parametrize("norm", native.NORMS)
def test_evaluation_counts_as_torch_does(instructions: str, norm: str) -> None:
    model = model_of(28, norm, 10, 1, 1.0)
    with torch.no_grad():
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.add_(torch.rand_like(buffer))
    samples = samples_of(28, 10, 333, 4)
    logits = model.eval()(torch.from_numpy(samples.images).float() / 255)
    labels = torch.from_numpy(samples.labels)
    state = native_kernel.Weights.of(model)
    worker = native.Worker(shape_of(model), instructions)
    right, loss = worker.evaluate(samples, state.parameters, state.buffers, 20, 313)
    assert right == int((logits[20:].argmax(1) == labels[20:]).sum())
    expected = functional.cross_entropy(logits[20:], labels[20:], reduction="sum").item()
    assert loss == pytest.approx(expected, rel=1e-5)


@needs_kernels
@settings(max_examples=30, deadline=None)
@given(
    side=st.sampled_from(sorted(IMAGES)),
    norm=st.sampled_from(native.NORMS),
    classes=st.integers(2, 12),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    instructions=st.sampled_from(native.INSTRUCTION_SETS),
)
def test_evaluation_gives_the_logits_of_torch_in_double_precision(
    side: int, norm: str, classes: int, seed: int, scale: float, instructions: str
) -> None:
    loaded = native.library()
    assert loaded is not None
    assume(loaded.camu_supports(instructions.encode()))
    model = model_of(side, norm, classes, seed, scale).eval()
    generator = derive(seed, "own-statistics").numpy()
    with torch.no_grad():
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.add_(torch.from_numpy(generator.random(buffer.shape)).float())
    # Each image with each label: a loss is the logarithm of a label's probability.
    images = np.repeat(samples_of(side, classes, 9, seed).images, classes, axis=0)
    samples = native.Samples(images, np.tile(np.arange(classes), 9))
    with torch.no_grad():
        logits = copy.deepcopy(model).double()(torch.from_numpy(images[::classes]).double() / 255)
    expected = -logits.log_softmax(1).numpy().reshape(-1)
    state = native_kernel.Weights.of(model)
    worker = native.Worker(shape_of(model), instructions)

    def loss(first: int, count: int) -> float:
        return worker.evaluate(samples, state.parameters, state.buffers, first, count)[1]

    allowed = 1e-5 * max(1.0, logits.abs().max().item())
    for first in range(len(images)):
        assert loss(first, 1) == pytest.approx(expected[first], rel=0, abs=allowed)
    whole = loss(0, len(images))
    assert whole == pytest.approx(expected.sum(), rel=0, abs=allowed * len(images))


@needs_kernels
def test_samples_that_do_not_fit_the_model_are_refused(toy: Toy, small_toy: Toy) -> None:
    model = PaperCNN((1, 28, 28), 4)
    with pytest.raises(InputError, match="it has 4 classes; the labels need 10 classes"):
        toy.engine(model, kernel="native")
    with pytest.raises(InputError, match=r"it takes images of shape \(1, 28, 28\)"):
        small_toy.engine(PaperCNN((1, 28, 28), 10), kernel="native")


@needs_kernels
def test_used_memory_leaves_no_trace(toy: Toy) -> None:
    small, large = Job((4,), (1.0,), 3), Job((0, 1, 2, 3), (1.0, 2.0, 3.0, 4.0), 2)
    with toy.engine(workers=1, kernel="native") as engine:
        first = engine.train(engine.initial, [small], 0)[0].sha256()
        engine.train(engine.initial, [large], 0)
        engine.evaluate(engine.initial)
        engine.gradient(engine.initial)
        assert engine.train(engine.initial, [small], 0)[0].sha256() == first


@needs_kernels
@pytest.mark.parametrize("norm", native.NORMS)
def test_units_of_one_call_are_as_if_trained_alone(instructions: str, norm: str) -> None:
    samples, generator = samples_of(28, 10, 80, 6), derive(6, "own-units").numpy()
    starts = [native_kernel.Weights.of(model_of(28, norm, 10, seed, 1.0)) for seed in (0, 1)]

    def task(start: int, together: bool, updates: int) -> tuple[native.Task, Schedule]:
        state, steps = starts[start], [1, 1] if together else [2, 1]
        sizes = generator.integers(1, 20, updates * sum(steps))
        batches = [generator.integers(0, 80, size) for size in sizes]
        terms = {"rate": 0.1, "l2": 0.01, "proximal": 0.1 * generator.integers(0, 2)}
        correction = starts[1].parameters if generator.integers(0, 2) else None
        own = native.Task(
            *(state.parameters, state.buffers, starts[1].parameters, correction),
            *(updates, together),
            **terms,
        )
        return own, schedule_of(batches, steps)

    # Units with one step from the same weights share a pass, up to 192 samples; the others must not
    # leave their weights to the next one.
    kinds = [(0, True, 1), (0, True, 1), (0, True, 3), (0, True, 1), (0, False, 1), (0, True, 1)]
    others = [(1, True, 1), (1, False, 2), (0, True, 2), *[(1, True, 1)] * 25]
    tasks, schedules = zip(*[task(*kind) for kind in (*kinds, *others)], strict=True)
    assert sum(len(own.indices) for own in schedules[-25:]) > 2 * 192
    shape, stop = shape_of(model_of(28, norm, 10, 0, 1.0)), ctypes.c_int32(0)
    whole = Schedules.of(schedules)
    shares = [0.3, 0.7]
    worker = native.Worker(shape, instructions)
    together = worker.train(samples, tasks, shares * len(tasks), whole, stop)
    assert together is not None
    for own, schedule, (parameters, buffers, loss) in zip(tasks, schedules, together, strict=True):
        worker = native.Worker(shape, instructions)
        alone = worker.train(samples, [own], shares, Schedules.of([schedule]), stop)
        assert alone is not None
        assert np.array_equal(alone[0][0], parameters)
        assert np.array_equal(alone[0][1], buffers)
        assert alone[0][2] == loss


@needs_kernels
def test_threads_do_not_disturb_each_other(toy: Toy, instructions: str) -> None:
    model = model_of(28, "batch", 10, 0, 1.0)
    samples, order = samples_of(28, 10, 100, 0), [np.arange(100)]
    parameters = native_kernel.Weights.of(model).parameters
    found: list[bytes] = []

    def work() -> None:
        worker = native.Worker(shape_of(model), instructions)
        for _ in range(5):
            found.append(worker.gradient(samples, parameters, order, [1.0])[0].tobytes())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 15
    assert len(set(found)) == 1


@needs_kernels
def test_closing_stops_a_job_at_its_next_step(small_toy: Toy) -> None:
    stop = ctypes.c_int32(1)
    model = model_of(8, "batch", 10, 0, 1.0)
    state = native_kernel.Weights.of(model)
    worker = native.Worker(shape_of(model), native.instruction_set() or "")
    task = native.Task(
        state.parameters,
        state.buffers,
        state.parameters,
        None,
        updates=1,
        together=True,
        rate=0.1,
        l2=0.0,
        proximal=0.0,
    )
    asked = (
        samples_of(8, 10, 3, 0),
        [task] * 2,
        [1.0] * 2,
        Schedules.of([schedule_of([np.arange(1)], [1])] * 2),
    )
    assert worker.train(*asked, stop) is None
    stop.value = 0
    assert worker.train(*asked, stop) is not None
    with small_toy.engine(kernel="native", workers=2) as engine:
        stream = engine.iterate(engine.initial, [Job((0,), (1.0,), n) for n in (1, 30_000)], 0)
        next(stream)
        engine.close()
        with pytest.raises(CamuError, match="was stopped because the engine was closed"):
            next(stream)


@needs_kernels
def test_the_environment_limits_the_instruction_set(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native.LIMIT, "avx2")
    with toy.engine() as engine:
        assert engine.kernel == "native avx2"
    monkeypatch.setenv(native.LIMIT, "avx1024")
    with pytest.raises(InputError, match="CAMU_KERNEL = avx1024: use avx512 or avx2"):
        toy.engine()


def test_without_a_library_torch_trains_and_it_is_said_once(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setattr(native, "LIBRARY", Path("no library"))
    native_kernel._mention.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with toy.engine() as engine:
                assert engine.kernel == "torch"
    (message,) = [record.getMessage() for record in caplog.records]
    assert "camu was installed without them, because no C++ compiler was found" in message
    with pytest.raises(InputError, match=r'run\.kernel = "native": there are no compiled kernels'):
        toy.engine(kernel="native")


@needs_kernels
def test_a_library_of_another_version_is_not_used(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, old = tmp_path / "old.cc", tmp_path / "old.so"
    source.write_text('extern "C" int camu_supports(const char*) { return 1; }\n')
    compiler = os.environ.get("CXX") or "c++"
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", old], check=True)
    monkeypatch.setattr(native, "LIBRARY", old)
    native.library.cache_clear()
    try:
        with pytest.raises(InputError, match="they belong to another version of camu"):
            toy.engine(kernel="native")
    finally:
        native.library.cache_clear()


def test_other_models_train_on_torch_without_a_word(
    small_toy: Toy, caplog: pytest.LogCaptureFixture
) -> None:
    with small_toy.engine("logistic", "none") as engine:
        assert engine.kernel == "torch"
    assert not caplog.records
    with pytest.raises(InputError, match="they train the built-in CNN on images of 28x28, 8x8"):
        small_toy.engine("logistic", "none", kernel="native")


@needs_kernels
def test_kernels_that_compute_wrongly_are_not_used(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CAMU_DATA", str(tmp_path))  # where no comparison is noted
    right = native.Worker.gradient

    def wrong(self, *arguments, **options):
        gradient, loss = right(self, *arguments, **options)
        gradient[0] += 1
        return gradient, loss

    monkeypatch.setattr(native.Worker, "gradient", wrong)
    native_check.trouble.cache_clear()
    native_kernel._mention.cache_clear()
    with toy.engine() as engine:
        assert engine.kernel == "torch"
    assert "their gradient differs from torch's by" in caplog.text
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    native_check.trouble.cache_clear()
    with toy.engine() as engine:
        assert engine.kernel.startswith("native")


EXERCISE = """
import ctypes, sys
from pathlib import Path
import numpy as np
from camu.data.batches import Batches, Schedule, Schedules, Wanted
from camu.learning import native, native_draw, sums
from camu.seeding import Stream
native.LIBRARY = Path(sys.argv[1])
generator = np.random.default_rng(0)
for set_ in native.INSTRUCTION_SETS:
    if not native.library().camu_supports(set_.encode()):
        continue
    for channels, side, kernel, padding in ((1, 28, 5, 0), (1, 8, 3, 1), (3, 32, 5, 0)):
        images = generator.integers(0, 256, (40, channels, side, side), dtype=np.uint8)
        samples = native.Samples(images, generator.integers(0, 7, 40))
        cells = ((side + 2 * padding - kernel + 1) // 2 + 2 * padding - kernel + 1) // 2
        count = 10 * channels * kernel**2 + 10 + 200 * kernel**2 + 20
        count += 50 * (20 * cells**2 + 1) + 7 * 51
        for norm in native.NORMS:
            size = count + (0 if norm == "none" else 40)
            parameters = (0.1 * generator.standard_normal(size)).astype(np.float32)
            buffers = np.ones(40 if norm == "batch" else 0, dtype=np.float32)
            worker = native.Worker(native.Shape(channels, side, kernel, padding, norm, 7), set_)
            batches = [generator.integers(0, 40, size) for size in (1, 17, 3, 19)]
            tasks = [
                native.Task(
                    parameters, buffers, parameters, parameters,
                    updates, together, 0.1, 0.1, 0.1)
                for together, updates in ((True, 2), (False, 1), (True, 1), (True, 1))]
            sizes = np.int32([1, 17, 3, 19])
            schedules = Schedules.of([
                Schedule(np.concatenate(batches), sizes, np.int32(steps))
                for steps in ([1, 1], [1, 3], [1, 1], [1, 1])])
            shares = [0.4, 0.6] * len(tasks)
            assert worker.train(samples, tasks, shares, schedules, ctypes.c_int32(0)) is not None
            large = [generator.integers(0, 40, 200), np.arange(40)]
            worker.gradient(samples, parameters, large, [0.5, 0.5])
            worker.evaluate(samples, parameters, buffers, 3, 37)
            del worker
held = [np.arange(size) for size in (1, 2, 300)]
batches = Batches(10**9, held, 0.2)
draw = native_draw.compiled_draw(batches)
wanted = [Wanted((0, 1, 2, 2), range(10**12, 10**12 + 9), 2), Wanted((2,), range(1))]
draw(Stream(2**256 - 1), wanted)
model = np.linspace(0, 1, 30_001, dtype=np.float32)
for start in (None, model[::-1]):
    numbers, _ = native_draw.noisy_change(model, start, 0.1, True, Stream(2**256 - 1))
sums.sum_of_squares(numbers)
total = sums.WeightedSum(30_001)
for factor in range(19):
    total.add(factor, numbers)
assert total.total.any()
print("all ran")
"""


@needs_kernels
@pytest.mark.slow
def test_sanitizers_have_nothing_to_report(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or "c++"
    found = [
        subprocess.run([compiler, f"-print-file-name={name}.so"], capture_output=True, text=True)
        for name in ("libasan", "libubsan")
    ]
    runtimes = [done.stdout.strip() for done in found]
    assert all(Path(name).is_absolute() for name in runtimes), runtimes
    library = tmp_path / "checked.so"
    build = Path(native.__file__).with_name("build.py")
    flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run([sys.executable, build, "--out", library, *flags], check=True)
    ran = subprocess.run(
        [sys.executable, "-c", EXERCISE, str(library)],
        env={**os.environ, "LD_PRELOAD": " ".join(runtimes), "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "all ran" in ran.stdout
    assert "runtime error" not in ran.stderr
