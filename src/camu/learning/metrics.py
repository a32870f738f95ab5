"""The metrics that a model is judged by: their names, which way is better, and their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from camu.arrays import AnyArray
from camu.errors import InputError, suggest
from camu.plugins import import_object, is_plugin, user_code

# From the outputs of a model for all test samples, and their targets.
Function = Callable[[AnyArray, AnyArray], float]

# Which targets a metric is for, whether higher is better, whether it is a share from 0 to 1.
_KNOWN = {
    "accuracy": (("classes", "next-token"), True, True),
    "f1": (("classes",), True, True),
    "balanced-accuracy": (("classes",), True, True),
    "auc": (("classes",), True, True),
    "perplexity": (("classes", "next-token"), False, False),
    "rmse": (("numbers",), False, False),
    "mae": (("numbers",), False, False),
    "r2": (("numbers",), True, False),
    "loss": (("classes", "next-token", "numbers"), False, False),
}
METRICS = tuple(_KNOWN)
# How people write those whose names are written otherwise in a configuration.
_TITLES = {
    "f1": "F1",
    "balanced-accuracy": "balanced accuracy",
    "auc": "AUC",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
}
# The best value of those that are no shares, where there is one.
_LIMITS = {"perplexity": 1.0, "rmse": 0.0, "mae": 0.0, "r2": 1.0}
# Of the devices: each judges its own model, or the global one, on test samples of its own.
_OF_DEVICES = re.compile(r"(mean|worst|spread)-device-(accuracy|loss)")
_TOP = re.compile(r"top-([1-9]\d*)")
_SUMMED = ("accuracy", "perplexity", "loss")  # from counts and losses, without the outputs


@dataclass(frozen=True)
class Metric:
    """A number that says how good a model is."""

    name: str  # one of METRICS, `top-K`, `module:function`, or `-module:function`: lower is better
    higher_is_better: bool = True
    share: bool = True  # from 0 to 1, shown in percent
    targets: tuple[str, ...] = ("classes",)

    @property
    def title(self) -> str:
        """The name as people write it."""
        if self.top is not None:
            return f"top-{self.top} accuracy"
        if self.of_devices:
            return self.name.replace("-", " ")
        return _TITLES.get(self.name, self.name.removeprefix("-").rpartition(":")[2])

    @property
    def heading(self) -> str:
        """The title with the unit, to begin a sentence with."""
        title = self.title[0].upper() + self.title[1:]
        return f"{title} in %" if self.share else title

    @property
    def scale(self) -> int:
        """What its values are multiplied by in tables: shares are shown in percent."""
        return 100 if self.share else 1

    @property
    def limit(self) -> float:
        """The best value that it can have; infinite where it is not known."""
        return float(self.higher_is_better) if self.share else _LIMITS.get(self.name, -self.worst)

    @property
    def top(self) -> int | None:
        """How many of the largest outputs count; None for other metrics."""
        found = _TOP.fullmatch(self.name)
        return None if found is None else int(found[1])

    @property
    def needs_outputs(self) -> bool:
        """Whether it takes what the model says of every sample."""
        return self.name not in _SUMMED and not self.of_devices

    @property
    def of_devices(self) -> bool:
        """Whether each device judges its model on test samples of its own."""
        return _OF_DEVICES.fullmatch(self.name) is not None

    @property
    def sign(self) -> int:
        """A factor that makes higher better."""
        return 1 if self.higher_is_better else -1

    @property
    def worst(self) -> float:
        """A value that every model beats."""
        return -self.sign * math.inf

    def reached(self, value: float, target: float) -> bool:
        """Whether a value is as good as the target, or better."""
        return self.sign * value >= self.sign * target

    def better(self, value: float, other: float) -> bool:
        """Whether a value is better than another one."""
        return self.sign * value > self.sign * other

    def best(self, values: Sequence[float]) -> float:
        """The best of some values."""
        return max(values, key=lambda value: self.sign * value)

    def show(self, value: float | None, digits: int = 2) -> str:
        """A value as people read it; "" if there is none. The digits are those of percentages."""
        if value is None:
            return ""
        if not math.isfinite(value):
            return "blown up"
        return f"{value:.{digits}%}" if self.share else f"{value:.4g}"

    def check_target(self, target: float, what: str) -> None:
        """Refuse a target that no model can have."""
        if not math.isfinite(target) or (self.share and not 0 <= target <= 1):
            allowed = "from 0 to 1, for example 0.9" if self.share else "a finite number"
            raise InputError(f"{what} {target:g}: {self.title} is {allowed}")


def finite(value: float | None) -> float | None:
    """A value as tables and JSON take it: a model that has blown up has none."""
    return value if value is not None and math.isfinite(value) else None


@cache
def find_metric(name: str) -> Metric:
    """A metric by its name."""
    if name in _KNOWN:
        targets, higher, share = _KNOWN[name]
        return Metric(name, higher, share, targets)
    if _TOP.fullmatch(name):
        return Metric(name)
    if found := _OF_DEVICES.fullmatch(name):
        share = found[2] == "accuracy"
        targets = ("classes", "next-token") if share else ("classes", "next-token", "numbers")
        return Metric(name, share and found[1] != "spread", share, targets)
    own = name.removeprefix("-")
    if is_plugin(own):
        return Metric(name, own == name, False, ("classes", "next-token", "numbers"))
    raise InputError(
        f"training.metrics: {name!r} is unknown{suggest(name, METRICS)}; use {', '.join(METRICS)}, "
        "top-K, mean-device-accuracy, worst-device-accuracy, spread-device-accuracy, the same with "
        "loss, or `module:function`, with a minus in front where lower is better"
    )


WORST_SHARE = 0.1  # of the devices, at least one


def compute_of_devices(metric: Metric, found: Sequence[tuple[float, float]]) -> float:
    """A metric of the devices, from the accuracy and the loss of each.

    `worst` is the mean of the worst tenth, `spread` the standard deviation.
    """
    match = _OF_DEVICES.fullmatch(metric.name)
    assert match is not None
    share = match[2] == "accuracy"
    values = np.array([one[0] if share else one[1] for one in found])
    if not values.size or not np.isfinite(values).all():
        return math.nan
    if match[1] == "spread":
        return float(values.std())
    if match[1] == "worst":
        ordered = np.sort(values) if share else -np.sort(-values)
        values = ordered[: max(1, math.ceil(WORST_SHARE * len(values)))]
    return float(values.mean())


def compute(metric: Metric, outputs: AnyArray, targets: AnyArray) -> float:
    """The value of a metric that needs outputs; nan where the model has blown up."""
    if not np.isfinite(outputs).all():
        return math.nan
    own = metric.name.removeprefix("-")
    if is_plugin(own):
        return _own(own, outputs, targets)
    if outputs.dtype == np.float32 and targets.dtype == np.float32:  # squares need the digits
        outputs, targets = outputs.astype(np.float64), targets.astype(np.float64)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # of a model that is blowing up
            return float(_function(metric.name)(outputs, targets))
    except ValueError as error:
        raise InputError(
            f"training.metrics: {metric.name} has no value on these test samples ({error}); choose "
            "another metric, or test on other samples"
        ) from None


def _own(path: str, outputs: AnyArray, targets: AnyArray) -> float:
    """The value of the user's metric, checked."""
    what = f"training.metrics = {path}"
    function = import_object(path, "training.metrics")
    with user_code(what, function, "(outputs, targets)"):
        value = function(outputs, targets)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{what}: it returned {type(value).__name__}; return a number") from None
    if math.isnan(number):
        raise InputError(
            f"{what}: it returned nan for finite outputs; return a number for every model"
        )
    return number


def _function(name: str) -> Function:
    """What computes a metric: scikit-learn, which takes long to load and few runs need."""
    from sklearn import metrics

    if top := _TOP.fullmatch(name):
        return lambda outputs, labels: top_accuracy(outputs, labels, int(top[1]))
    functions: dict[str, Function] = {
        "f1": lambda outputs, labels: metrics.f1_score(
            labels, predicted(outputs), average="macro", zero_division=0.0
        ),
        "balanced-accuracy": lambda outputs, labels: metrics.recall_score(
            labels, predicted(outputs), labels=np.unique(labels), average="macro"
        ),
        "auc": _auc,
        "rmse": lambda outputs, numbers: metrics.root_mean_squared_error(numbers, outputs),
        "mae": lambda outputs, numbers: metrics.mean_absolute_error(numbers, outputs),
        "r2": lambda outputs, numbers: metrics.r2_score(numbers, outputs),
    }
    return functions[name]


def predicted(outputs: AnyArray) -> AnyArray:
    """The class that each output names; a single number is positive for class 1."""
    if outputs.shape[-1] == 1:
        return (outputs[..., 0] > 0).astype(np.int64)
    return np.asarray(outputs.argmax(axis=-1))


def top_accuracy(outputs: AnyArray, labels: AnyArray, top: int) -> float:
    """The share of samples whose label is among the `top` largest outputs; ties are won."""
    if outputs.shape[-1] == 1:
        return float((predicted(outputs) == labels).mean()) if top == 1 else 1.0
    own = np.take_along_axis(outputs, labels[:, None], axis=1)
    return float(((outputs > own).sum(axis=1) < top).mean())


def _auc(outputs: AnyArray, labels: AnyArray) -> float:
    """The area under the ROC curve; of several classes, the mean of each against the others."""
    from scipy.special import softmax
    from sklearn.metrics import roc_auc_score

    if outputs.shape[-1] <= 2:
        score = outputs[:, 0] if outputs.shape[-1] == 1 else outputs[:, 1] - outputs[:, 0]
        return float(roc_auc_score(labels, score))
    shares = softmax(outputs.astype(np.float64), axis=1)
    return float(roc_auc_score(labels, shares, multi_class="ovr", labels=range(shares.shape[1])))
