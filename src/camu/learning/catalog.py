"""The built-in models: which data and which loss each is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from camu.data import DatasetSpec
from camu.data.catalog import Target
from camu.errors import InputError

Form = Literal["images", "table", "series", "arrays", "tokens"]

_LABELS: tuple[Target, ...] = ("classes",)
_ONE: tuple[Target, ...] = ("classes", "numbers")  # targets of a sample as a whole
_FLAT: tuple[Form, ...] = ("images", "table", "series", "arrays")
_HINGE = "hinge"


@dataclass(frozen=True)
class Kind:
    """What a model can learn from, and towards what."""

    forms: tuple[Form, ...]
    targets: tuple[Target, ...]


MODELS = {
    "cnn": Kind(("images",), _ONE),
    "resnet8": Kind(("images",), _ONE),
    "logistic": Kind(_FLAT, _LABELS),
    "svm": Kind(_FLAT, _LABELS),
    "linear": Kind(_FLAT, ("numbers",)),
    "mlp": Kind(_FLAT, _ONE),
    "cnn1d": Kind(("series",), _ONE),
    "gru": Kind(("series", "tokens"), (*_ONE, "next-token")),
}


def form_of(spec: DatasetSpec) -> Form:
    """What the samples of a data set are to a model."""
    if spec.inputs == "tokens":
        return "tokens"
    if spec.inputs == "images":
        return "images"
    forms: dict[int, Form] = {1: "table", 2: "series", 3: "images"}
    return forms.get(len(spec.shape), "arrays")


def usual_loss(model: str, usual: str) -> str:
    """The loss that `auto` means for a model; `usual` is that of the targets."""
    return _HINGE if model == "svm" else usual


def check_model(model: str, spec: DatasetSpec, dataset: str, loss: str) -> None:
    """Refuse a built-in model that is not for the samples, the targets or the loss."""
    if model not in MODELS:
        return
    kind, form, about = MODELS[model], form_of(spec), f"data.dataset = {dataset}"
    fitting = [name for name, own in MODELS.items() if _fits(own, spec) and name != model]
    instead = f"use {', '.join(fitting)}, or your own module:Class"
    if form not in kind.forms:
        raise InputError(f"training.model = {model}: {about} has {_words(spec)}; {instead}")
    if spec.target not in kind.targets:
        targets = {
            "classes": f"{spec.classes} classes",
            "numbers": "numbers",
            "next-token": "the next token",
        }
        raise InputError(
            f"training.model = {model}: the targets of {about} are {targets[spec.target]}; "
            f"{instead}"
        )
    if model == "svm" and loss != _HINGE:
        raise InputError(
            f"training.model = svm: it is trained with the hinge loss, and training.loss is "
            f"{loss}; leave training.loss out, or use logistic"
        )
    if model == "logistic" and loss == _HINGE:
        raise InputError(
            "training.model = logistic: with training.loss = hinge it is a support vector "
            "machine; use training.model = svm"
        )


def _fits(kind: Kind, spec: DatasetSpec) -> bool:
    return form_of(spec) in kind.forms and spec.target in kind.targets


def _words(spec: DatasetSpec) -> str:
    """The samples of a data set, as a message names them."""
    form, shape = form_of(spec), spec.shape
    if form == "tokens":
        return f"tokens, {shape[0]} per sample"
    if form == "table":
        return f"rows of {shape[0]} numbers"
    if form == "series":
        return f"series, {shape[0]} channels of {shape[1]} numbers (images have three axes)"
    kind = "images" if form == "images" else "arrays"
    return f"{kind} of shape {shape}"
