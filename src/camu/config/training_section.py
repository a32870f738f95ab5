"""The section on the model and on local training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import field_validator, model_validator

from camu.config.fields import Choice, Count, Section, Share, field, rule_error

MODELS = ("cnn", "resnet8", "logistic", "svm", "linear", "mlp", "cnn1d", "gru")
LOSSES = ("auto", "cross-entropy", "binary", "hinge", "squared", "huber")


class TrainingConfig(Section):
    """Model and local training."""

    model: Annotated[str, Choice(MODELS, group="models")] = field(
        "cnn",
        "Images: `cnn` (the paper's), `resnet8` (group norm, for colour images). Series (channels, "
        "length): `cnn1d`, `gru`, which also reads tokens. Any floats and images: `mlp` (two "
        "layers of 200), `logistic`, `svm` (hinge loss), for targets that are numbers `linear`. Or "
        "your own torch module as `module:Class`.",
    )
    loss: Annotated[str, Choice(LOSSES)] = field(
        "auto",
        "Loss: `cross-entropy`, `binary` (two classes), `hinge` (smooth, with svm), `squared`, "
        "`huber`, or your own as `module:function`, from outputs and targets to a loss per sample. "
        "`auto`: cross-entropy for classes and the next token, squared for numbers.",
    )
    metrics: tuple[str, ...] = field(
        (),
        "What the model is judged by on the test samples; the first decides what is better: "
        "`accuracy`, `top-K`, `f1`, `balanced-accuracy`, `auc`, `perplexity`, `rmse`, `mae`, `r2`, "
        "`loss`, `mean-device-accuracy` (each device on test samples of its own), "
        "`worst-device-accuracy` (the worst tenth), `spread-device-accuracy` (standard deviation), "
        "these with `loss` too, or your own as `module:function`, with a minus in front where "
        "lower is better. "
        "Empty: accuracy for classes, accuracy and perplexity for the next token, rmse and r2 for "
        "numbers.",
        strict=False,
    )
    normalisation: Literal["batch", "group", "none"] = field(
        "batch", "Normalisation layer of the CNN."
    )
    learning_rate: float = field(0.5e-3, "Learning rate lambda of plain SGD.", "1", gt=0, le=1e6)
    batch_fraction: float | None = field(
        0.2, "Mini-batch as a fraction of the device's own data; 1: all of them.", "1", gt=0, le=1
    )
    batch_samples: Count | None = field(
        None, "Mini-batch as a number of samples, in place of batch_fraction.", "samples"
    )
    local_update: Literal["step", "epoch"] = field(
        "step",
        "One local update: `step` one mini-batch per member, averaged at the leader; "
        "`epoch` all mini-batches of each member, then averaged.",
    )
    l2: float = field(
        0.0,
        "Weight of the l2 penalty (l2/2)*||w||^2, which is part of the gradient: the weight_decay "
        "of torch's SGD.",
        "1",
        ge=0,
        le=1e6,
    )
    optimiser: Literal["sgd", "adam"] = field(
        "sgd", "What a device steps with; `adam` has the constants 0.9, 0.999 and 1e-8."
    )
    momentum: Share = field(0.0, "Momentum of a device's SGD steps; 0: none.", "1")
    nesterov: bool = field(False, "Nesterov's form of the momentum.")
    weight_decay: float = field(
        0.0,
        "Decay of the weights beside the gradient, as in AdamW: each step takes away "
        "learning_rate*weight_decay*w.",
        "1",
        ge=0,
        le=1e6,
    )
    clip_norm: float = field(
        0.0,
        "Largest norm of a device's gradient in a step, with its proximal term and without l2; "
        "0: any.",
        "1",
        ge=0,
        le=1e9,
    )
    optimiser_state: Literal["reset", "keep"] = field(
        "reset",
        "Momentum, and the means of Adam: `reset` begin anew in each round, `keep` stay at the "
        "device for its next one.",
    )
    schedule: Literal["constant", "cosine", "inverse", "step"] = field(
        "constant",
        "Factor on the learning rate after t rounds, with R = schedule_rounds and f = "
        "schedule_factor: `cosine` f + (1-f)*(1+cos(pi*t/R))/2 until R, then f; `inverse` "
        "1/(1+t/R); `step` f^floor(t/R).",
    )
    schedule_rounds: Count = field(100, "R of the schedule.", "rounds")
    schedule_factor: float = field(0.1, "f of the schedule.", "1", ge=0, le=1)
    schedule_by: Literal["round", "step"] = field(
        "round", "What t counts: whole rounds, or also a round's local steps as parts of it."
    )
    dp_unit: Literal["none", "sample", "update"] = field(
        "none",
        "Differential privacy at the device: `sample` clips each sample's gradient and adds noise "
        "to their sum (DP-SGD), `update` clips what a device has learned and adds noise to it "
        "before it leaves. The history then has the epsilon (extra `privacy`).",
    )
    dp_clip: float = field(1.0, "Largest norm of what is clipped for privacy.", "1", gt=0, le=1e9)
    dp_noise: float = field(
        1.0, "Standard deviation of the noise, divided by dp_clip.", "1", gt=0, le=1e6
    )
    dp_delta: float = field(
        1e-5, "Delta of the differential privacy that epsilon is given for.", "1", gt=0, lt=1
    )
    secure_sum: Literal["none", "unit"] = field(
        "none",
        "Secure aggregation: with `unit` the members of a unit of three or more mask what they "
        "send to their leader, which sees their sum alone. A simulation charges what the masks "
        "need and takes the exact sum.",
    )
    secure_clip: float = field(
        8.0,
        "Largest norm of what a device of a deployment adds to a secure sum; more is scaled down "
        "there. The sum has steps of secure_clip/2^30.",
        "1",
        ge=1e-6,
        le=1e6,
    )
    server_momentum: Share = field(
        0.0, "Momentum of the server on the aggregated update, for any scheme; 0: none.", "1"
    )
    max_update_norm: float = field(
        1e3,
        "Updates with a larger norm are refused as faulty; `inf` accepts every finite update.",
        "1",
        gt=0,
        allow_inf_nan=True,
    )

    @field_validator("metrics", mode="before")
    @classmethod
    def _one_metric(cls, given: Any) -> Any:
        """A single name is a list of one."""
        return (given,) if isinstance(given, str) else given

    @model_validator(mode="before")
    @classmethod
    def _samples_replace_the_fraction(cls, given: Any) -> Any:
        """Leave out the default fraction where a number of samples is given."""
        if isinstance(given, Mapping) and given.get("batch_samples") is not None:
            return {"batch_fraction": None, **given}
        return given

    @model_validator(mode="after")
    def _one_batch(self) -> TrainingConfig:
        if (self.batch_fraction is None) == (self.batch_samples is None):
            keys = ("training.batch_fraction", "training.batch_samples")
            raise rule_error("set one of {} and {}, and not both".format(*keys), *keys)
        return self

    @model_validator(mode="after")
    def _momentum_of_sgd(self) -> TrainingConfig:
        if self.momentum and self.optimiser != "sgd":
            keys = "training.momentum", "training.optimiser"
            raise rule_error(
                "training.momentum is for sgd, and Adam has means of its own; leave it at 0", *keys
            )
        if self.nesterov and not self.momentum:
            keys = "training.nesterov", "training.momentum"
            raise rule_error(
                "training.nesterov is a form of momentum; set training.momentum", *keys
            )
        own = {"schedule_rounds": 100, "schedule_factor": 0.1, "schedule_by": "round"}
        for name, usual in own.items():
            if self.schedule == "constant" and getattr(self, name) != usual:
                keys = "training.schedule", f"training.{name}"
                raise rule_error(f"training.{name} has no effect: set training.schedule too", *keys)
        if self.schedule == "step" and not self.schedule_factor:
            keys = "training.schedule", "training.schedule_factor"
            raise rule_error(
                "the rate would fall to 0; set training.schedule_factor above 0", *keys
            )
        return self

    @model_validator(mode="after")
    def _private_only_with_a_unit(self) -> TrainingConfig:
        """Refuse noise that nobody would add: who sets it counts on privacy."""
        for name in ("dp_clip", "dp_noise", "dp_delta"):
            usual = type(self).model_fields[name].default
            if self.dp_unit == "none" and getattr(self, name) != usual:
                key = f"training.{name}"
                raise rule_error(
                    f"{key} does nothing without training.dp_unit; set it to sample or update, or "
                    f"leave {key} out",
                    key,
                    "training.dp_unit",
                )
        return self

    @model_validator(mode="after")
    def _secure_clip_of_sums(self) -> TrainingConfig:
        if self.secure_sum == "none" and self.secure_clip != 8.0:
            keys = "training.secure_clip", "training.secure_sum"
            raise rule_error(
                "training.secure_clip does nothing without training.secure_sum = unit; leave it "
                "out",
                *keys,
            )
        return self

    @property
    def batch(self) -> int | float:
        """The mini-batch: an int is a number of samples, a float a fraction of a device's data."""
        if self.batch_samples is not None:
            return self.batch_samples
        assert self.batch_fraction is not None
        return self.batch_fraction
