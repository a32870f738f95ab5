"""What a node knows of its devices: their data, noisy label counts, measured time and joules.

A directory holds, for each device, `ID.safetensors`, or `ID-inputs.npy` and `ID-targets.npy` (or
`ID-images.npy` and `ID-labels.npy`). A function is named as `module:function` and called with a
device's id; it returns inputs and targets. They are of the kind and shape of the configured data
set; tokens alone need no targets.

Label counts leave a node with noise: each count gets the difference of two geometric variables
(discrete Laplace) with parameter epsilon. A sample that is added or removed changes one count by 1,
so a report is epsilon-differentially private for the samples of a device. The noise is drawn from a
secret of the node, the label and the counts themselves: the same data always give the same report,
so that asking again teaches nothing, whatever the number of classes that is asked for.
"""

from __future__ import annotations

import hmac
import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from camu.arrays import AnyArray
from camu.data import DatasetSpec
from camu.data.files import read_npy_file
from camu.data.samples import KINDS, Samples, check_samples, named
from camu.errors import InputError
from camu.plugins import import_object, is_plugin, user_code
from camu.seeding import derive

log = logging.getLogger(__name__)


class UnfitData(InputError):
    """Data that a run cannot use; the sentence has facts that stay with the node's owner."""


@contextmanager
def unfit() -> Iterator[None]:
    """Mark errors of reading data as such."""
    try:
        yield
    except InputError as error:
        raise UnfitData(str(error)) from error


FEWEST_UPDATES, MOST_UPDATES = 12, 3072
LEAST_SECONDS = 0.3  # of updates, where they are quick
STEADY = 0.1  # how much the median may still fall
METER_SECONDS = 0.5  # shortest time between two readings of a meter, which may be coarse
POWERCAP = Path("/sys/class/powercap")
_KINDS = ("inputs", "targets", "images", "labels")


def device_names(text: str) -> tuple[str, ...]:
    """The devices of a node, `a,b`, each once."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or len(set(names)) < len(names):
        raise InputError(
            'node config: name the node\'s devices, each once: devices="a,b" data="DIR"'
        )
    if wrong := [name for name in names if not name.isprintable()]:
        raise InputError(f"node config: device {wrong[0]!a}: use letters that can be printed")
    return names


def numbers_of(text: str, names: Sequence[str]) -> dict[str, float]:
    """One number for all devices, or one for each."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) not in (1, len(names)) or not all(-300 <= value <= 300 for value in values):
        raise InputError(
            f"node config: snr-db = {text}: give one number of dB, or one for each of the "
            f"{len(names)} devices"
        )
    return dict(zip(names, values * (len(names) // len(values)), strict=True))


def read_own(source: str, name: str, spec: DatasetSpec) -> tuple[AnyArray, AnyArray]:
    """Inputs and targets of one device (or of the test set), checked."""
    samples = _samples(source, name)
    checked = check_samples(samples, "auto" if samples.targets is None else spec.target)
    inputs, targets = checked.inputs, checked.targets
    needs = f"data.dataset = {spec.name} needs"
    if checked.kind != spec.inputs:
        raise InputError(
            f"{samples.inputs_name} are {KINDS[checked.kind]}; {needs} {KINDS[spec.inputs]}"
        )
    if checked.target != spec.target:
        raise InputError(f"{samples.targets_name} are missing; {needs} {spec.target}")
    if _full(inputs.shape[1:], spec) != _full(spec.shape, spec):
        wanted = ", ".join(map(str, spec.shape))
        raise InputError(
            f"{samples.inputs_name} are of shape {inputs.shape}; {needs} (n, {wanted})"
        )
    if spec.target == "classes" and targets.max() >= spec.classes:
        raise InputError(f"{samples.targets_name} must lie between 0 and {spec.classes - 1}")
    if spec.target == "numbers" and targets.shape[1] != spec.width:
        raise InputError(
            f"{samples.targets_name} are {targets.shape[1]} numbers each; {needs} {spec.width}"
        )
    if spec.inputs == "tokens" and checked.largest_token >= spec.vocabulary:
        raise InputError(
            f"{samples.inputs_name} must be tokens between 0 and {spec.vocabulary - 1}"
        )
    return inputs.reshape(-1, *spec.shape), targets


def check_own(source: str, names: Sequence[str]) -> None:
    """Refuse data that no run could use, before a node connects.

    What a run needs is not known here; all devices must have data of the same kind and shape.
    """
    kinds: dict[str, str] = {}
    for name in names:
        checked = check_samples(_samples(source, name))
        shape = checked.inputs.shape[1:]
        what = "images" if checked.kind == "images" else checked.kind
        shape = (1, *shape) if checked.kind == "images" and len(shape) == 2 else shape
        kinds.setdefault(f"{what} of {shape}", name)
    if len(kinds) > 1:
        (one, first), (two, second) = list(kinds.items())[:2]
        raise InputError(
            f"data from {source}: the inputs of {first} are {one} each and those of {second} {two};"
            " give all inputs the same type, size and channels"
        )


def _full(shape: tuple[int, ...], spec: DatasetSpec) -> tuple[int, ...]:
    """The shape of images with its channels, and any other as it is."""
    return (1, *shape) if spec.inputs == "images" and len(shape) == 2 else shape


def _samples(source: str, name: str) -> Samples:
    """Images and labels of a device as the owner gives them."""
    if is_plugin(source) and not Path(source).exists():
        images, labels = _from_function(source, name)
    elif Path(source).is_dir():
        images, labels = _from_directory(Path(source), name)
    else:
        raise InputError(
            f"data = {source}: no such directory; give a directory or a function module:function"
        )
    return named(f"data of {name} from {source}:", images, labels)


def _from_function(source: str, name: str) -> tuple[Any, Any]:
    reader = import_object(source, "data")
    if not callable(reader):
        raise InputError(f"data = {source}: this is not a function")
    with user_code(f"data = {source}", reader, "the id of a device"):
        answer = reader(name)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise InputError(
            f"data = {source}: for {name} it returned a value of type {type(answer).__name__}; it "
            "must return inputs and targets"
        )
    return answer[0], answer[1]


def _from_directory(folder: Path, name: str) -> tuple[Any, Any]:
    if Path(name).name != name:
        raise InputError(f"{name}: a device's id must be a plain file name to read its data")
    whole = folder / f"{name}.safetensors"
    try:
        if whole.exists():
            arrays = load_file(whole)
            return _first(arrays, "inputs", "images"), arrays.get("targets", arrays.get("labels"))
        files = {kind: folder / f"{name}-{kind}.npy" for kind in _KINDS}
        arrays = {kind: read_npy_file(file) for kind, file in files.items() if file.exists()}
        if not arrays:
            read_npy_file(files["inputs"])  # says why it cannot be read
        return _first(arrays, "inputs", "images"), arrays.get("targets", arrays.get("labels"))
    except (OSError, ValueError, KeyError, SafetensorError, InputError) as error:
        raise InputError(
            f"{folder}: the data of {name} cannot be read ({error}); write {whole.name} with the "
            f"arrays inputs and targets, or {name}-inputs.npy and {name}-targets.npy"
        ) from None


def _first(arrays: Mapping[str, Any], *names: str) -> Any:
    """The one array that has one of two names."""
    found = [name for name in names if name in arrays]
    if len(found) != 1:
        raise ValueError(f"both {' and '.join(names)}" if found else f"there is no {names[0]}")
    return arrays[found[0]]


def noisy_counts(
    counts: Sequence[int], epsilon: float, secret: bytes, device: str
) -> tuple[int, ...]:
    """The counts with noise, never below 0; at least one of them is 1, as a device has samples.

    The noise of a label does not depend on how many labels are asked for: a server that asks for
    one more class gets the same numbers, and no second noise to average.
    """
    last = max((place + 1 for place, count in enumerate(counts) if count), default=0)
    text = f"{device}\x1f{epsilon!r}\x1f{','.join(map(str, counts[:last]))}".encode()
    seed = int.from_bytes(hmac.digest(secret, text, "sha256"), "big")
    stop = -math.expm1(-epsilon)  # 1 - exp(-epsilon)
    noise = [
        derive(seed, "label-counts", label).numpy().geometric(stop, size=2)
        for label in range(len(counts))
    ]
    noisy = np.asarray(counts, dtype=np.int64)
    noisy = noisy + [more - less for more, less in noise]
    if noisy.max() <= 0:
        # The largest noisy value, not the largest count: after the noise nothing may depend on the
        # counts themselves, or the report would tell more than epsilon allows.
        noisy[int(np.argmax(noisy))] = 1
    return tuple(np.maximum(noisy, 0).tolist())


@dataclass(frozen=True)
class Meter:
    """A counter of joules, and what to call it in reports."""

    source: Literal["model", "rapl", "meter"]
    read: Callable[[], float]


@dataclass(frozen=True)
class Measured:
    """One local update: its time, and its energy where a meter could be read."""

    seconds: float | None  # None: not measured
    joules: float | None = None
    source: Literal["model", "rapl", "meter"] = "model"  # of the joules


def measure(
    update: Callable[[], None],
    budget_seconds: float,
    meter: Meter | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Time of one update: the median of the later ones, once it falls no more.

    The first updates of a process are many times slower than the later ones, and other programs
    disturb single ones. Updates are repeated, twice as many each time, until the median of the
    last half is no longer below that of the quarter before, for a third of a second at least; or
    until the budget is spent, with three updates at least.
    """
    times: list[float] = []
    began, wanted = clock(), FEWEST_UPDATES
    while len(times) < wanted:
        before = clock()
        update()
        now = clock()
        times.append(now - before)
        if len(times) >= 3 and now - began > budget_seconds:
            break
        short = now - began < min(LEAST_SECONDS, budget_seconds)
        if len(times) == wanted and (short or not _steady(times)):
            wanted = min(2 * wanted, MOST_UPDATES)
    seconds = max(statistics.median(times[len(times) // 2 :]), 1e-9)
    joules = None if meter is None else _joules(update, meter, clock)
    if meter is None or joules is None:
        return Measured(seconds)
    return Measured(seconds, joules, meter.source)


def _steady(times: list[float]) -> bool:
    """Whether the last half took as long as the quarter before it."""
    half = len(times) // 2
    last, before = times[half:], times[half // 2 : half]
    return statistics.median(last) >= (1 - STEADY) * statistics.median(before)


def _joules(update: Callable[[], None], meter: Meter, clock: Callable[[], float]) -> float | None:
    """Joules of one update between two readings; None if the meter gives nothing usable."""
    try:
        first, began, count = meter.read(), clock(), 0
        while count < FEWEST_UPDATES or (clock() - began < METER_SECONDS and count < MOST_UPDATES):
            update()
            count += 1
        joules = (meter.read() - first) / count
    except (OSError, InputError) as error:
        log.warning("%s cannot be read (%s): the energy model is used", meter.source, error)
        return None
    if not (math.isfinite(joules) and joules > 0):
        log.warning("%s counted %g J per update: the energy model is used", meter.source, joules)
        return None
    return joules


def find_meter(name: str, powercap: Path | None = None) -> Meter | None:
    """The owner's meter, `module:function`; without one the processor's RAPL, if it is readable."""
    if name:
        return Meter("meter", _own_meter(name))
    packages = (powercap or POWERCAP).glob("intel-rapl:*")
    try:
        counters = [_Rapl(zone) for zone in sorted(packages) if zone.name.count(":") == 1]
    except (OSError, ValueError):
        return None
    return Meter("rapl", lambda: sum(each() for each in counters)) if counters else None


class _Rapl:
    """The joules of one processor package since this object was made."""

    def __init__(self, zone: Path) -> None:
        self.path = zone / "energy_uj"
        self.range = int((zone / "max_energy_range_uj").read_text())
        self.last, self.total = int(self.path.read_text()), 0

    def __call__(self) -> float:
        now = int(self.path.read_text())
        # The counter starts again at 0 when it is full.
        self.total += now - self.last if now >= self.last else now + self.range - self.last
        self.last = now
        return self.total / 1e6


def _own_meter(name: str) -> Callable[[], float]:
    if not is_plugin(name):
        raise InputError(f"joules = {name}: name a function as module:function")
    function: Any = import_object(name, "joules")
    if not callable(function):
        raise InputError(f"joules = {name}: this is not a function")

    def read() -> float:
        try:
            return float(function())
        except Exception as error:
            raise InputError(
                f"joules = {name}: it must take nothing and return the joules that a meter has "
                f"counted so far ({type(error).__name__}: {error})"
            ) from None

    return read
