"""The sections on clustering, training, schemes, allocation, readings, runs and the machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from camu.config.fields import (
    Choice,
    Count,
    Decibels,
    Section,
    Share,
    Watts,
    field,
    machine_field,
    rule_error,
    stopping_field,
)


class ClusteringConfig(Section):
    """Dual-segment affinity propagation."""

    communication: Literal["snr-db", "uplink", "literal"] = field(
        "snr-db",
        "Similarity of links: `snr-db` device-to-device SNR in dB; `uplink` minus the squared "
        "difference of base-station SNR in dB; `literal` -gamma^2 as printed.",
    )
    data: Literal["xi", "pmf", "literal"] = field(
        "xi",
        "Similarity of data: `xi` minus the squared distance of information rows; `pmf` the same "
        "on label distributions; `literal` the printed positive fourth power: unlike together.",
    )
    preference: Literal["uplink", "quantile"] = field(
        "uplink",
        "Preference of the first segment: `uplink` around the median similarity, higher the better "
        "a device's link to the base station; `quantile`: preference_quantile.",
    )
    preference_quantile: float = field(
        0.5,
        "Preference as a quantile of the similarities: of the second segment, and of the first "
        "where `preference` says so. Higher gives more clusters.",
        "1",
        ge=0,
        le=1,
    )
    damping: float = field(0.7, "Damping of the messages.", "1", ge=0.5, lt=1)
    leader: Literal["exemplar", "best-uplink", "rotating"] = field(
        "exemplar",
        "Who leads a cluster: its exemplar, the member with the best uplink, or in turn the member "
        "with the most energy left.",
    )
    rotate_every: Count = field(
        10, "Rounds between two choices of leaders under `rotating`.", "rounds"
    )
    replan_every: Count | None = field(
        None,
        "Rounds after which the scheme plans again, for devices that have moved; every device then "
        "reports its links and hears of the new plan. Unset: never.",
        "rounds",
    )
    min_link_snr_db: Decibels = field(
        -10.0,
        "Weakest link between a member and its leader; devices without such a link are apart. Link "
        "types other than `shannon` have a lowest SNR of their own.",
        "dB",
    )
    count: Count | None = field(
        None, "Wished number of clusters; unset: as many as the preferences give.", "clusters"
    )


MODELS = ("cnn", "resnet8", "logistic", "svm", "linear", "mlp", "cnn1d", "gru")
LOSSES = ("auto", "cross-entropy", "binary", "hinge", "squared", "huber")


class TrainingConfig(Section):
    """Model and local training."""

    model: Annotated[str, Choice(MODELS)] = field(
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

    @property
    def batch(self) -> int | float:
        """The mini-batch: an int is a number of samples, a float a fraction of a device's data."""
        if self.batch_samples is not None:
            return self.batch_samples
        assert self.batch_fraction is not None
        return self.batch_fraction


class ContributionConfig(Section):
    """The contribution of a unit, theta_c = |D_c| e^(1/W_c)."""

    distance: Literal["wasserstein", "tv"] = field(
        "wasserstein", "Distance of label distributions: on label indices, or total variation."
    )


NotNan = Annotated[float, Field(ge=-math.inf, allow_inf_nan=True)]


class SchemeConfig(Section):
    """Which scheme, and its parameters."""

    name: str = field("camu", "Scheme by name (`camu schemes`), or your own as `module:Class`.")
    aggregation: Literal["mean", "median", "trimmed-mean", "multi-krum"] = field(
        "mean", "How updates are combined: weighted by the plan, or by a robust rule."
    )
    faulty_share: float = field(
        0.2, "Share of units that a robust rule takes to be wrong.", "1", ge=0, lt=0.5
    )
    parameters: dict[str, bool | int | NotNan | str] = field(
        {}, "Parameters of the scheme by name (`camu schemes` lists them), in place of its own."
    )


class AllocationConfig(Section):
    """The joint optimisation of powers and update counts (problem P1)."""

    solver: Annotated[str, Choice(("exact", "ppo", "latency"))] = field(
        "exact", "Solver of P1: `exact`, `ppo`, `latency`, or your own function as `module:name`."
    )
    energy_joules: float | None = field(
        None,
        "Energy budget per round; unset: what `compute-rounds` spends at each leader's own power.",
        "J",
        ge=1e-30,
        le=1e30,
    )
    max_total_power_watts: Watts | None = field(
        None, "Cap on the sum of the leaders' powers; unset: none.", "W"
    )
    ppo_steps: Count = field(100_000, "Environment steps of PPO training.", "steps")


class ReadingsConfig(Section):
    """Formulas of the paper that can be read in two ways; `literal` is the print."""

    w_min: float = field(
        0.5, "Smallest distance W_c used in e^(1/W_c); 0 is the printed formula.", "1", ge=0, le=1e9
    )
    bound: Literal["theorem1", "corrected"] = field(
        "corrected", "Convergence bound that P1 minimises: as printed, or corrected."
    )
    power_law: Literal["power", "amplitude"] = field(
        "power", "p in watts (noise term 1/p), or the printed amplitude (1/p^2)."
    )
    updates_charged: Literal["all", "literal"] = field(
        "all", "Energy counts all N_c updates, or the printed n_c, so that the first is free."
    )
    ppo_reward: Literal["current", "literal"] = field(
        "current", "Reward of the current action, or of the last round's as printed."
    )
    compute_model: Literal["cycles", "literal"] = field(
        "cycles",
        "`cycles`: energy kappa*cycles*f^2 of the samples used; "
        "`literal`: l_k q / f_k * p_cmp as printed in P1, with p_cmp = 0.5 W.",
    )


class RunConfig(Section):
    """Length, stopping, seed and machinery of a run."""

    seed: int = field(0, "Seed of everything random.", ge=0, lt=2**63)
    rounds: Count = stopping_field(200, "Global rounds.", "rounds")
    eval_every: Count = field(5, "Rounds between evaluations.", "rounds")
    eval_last: Count = field(1, "Evaluate after each of the last so many rounds.", "rounds")
    server_average: Share = field(
        0.0,
        "Decay of a moving average of the global model, which is evaluated too in the last rounds "
        "(eval_last); 0: none.",
        "1",
    )
    target: float | None = stopping_field(
        None,
        "Stop when the first of `training.metrics` is this good on the test samples: 0.9 for 90 % "
        "accuracy; unset: do not.",
        "1",
    )
    max_virtual_seconds: float | None = stopping_field(
        None, "Stop when the virtual clock passes this; unset: do not.", "s", gt=0
    )
    max_joules: float | None = stopping_field(
        None, "Stop when the fleet has spent this; unset: do not.", "J", gt=0
    )
    min_joules: float | None = stopping_field(
        None,
        "Continue after `rounds` until the fleet has spent this, and evaluate at 80, 85, 90, 95 "
        "and 100 % of it; unset: do not.",
        "J",
        gt=0,
    )
    min_virtual_seconds: float | None = stopping_field(
        None,
        "Continue after `rounds` until the virtual clock passes this, and evaluate at 80, 85, 90, "
        "95 and 100 % of it; unset: do not.",
        "s",
        gt=0,
    )
    patience: Count | None = stopping_field(
        None, "Stop after this many evaluations without a better score; unset: do not."
    )


class MachineConfig(Section):
    """How the work is done on this machine; it is no part of a result."""

    engine: Literal["local", "ray"] = machine_field(
        "local",
        "What trains units: workers of this process, or actors of a Ray cluster (extra `ray`).",
    )
    workers: int = machine_field(
        0,
        "Training workers; 0 is one per core, with `ray` one per processor of the cluster.",
        "workers",
        ge=0,
        le=4096,
    )
    device: Literal["cpu", "cuda"] = machine_field(
        "cpu",
        "Where gradients are computed; `cuda`, a graphics card, trains with torch's layers only, "
        "which for the built-in CNN is slower than compiled kernels on a processor.",
    )
    kernel: Literal["auto", "native", "batched", "torch"] = machine_field(
        "auto",
        "What computes gradients: `native` compiled kernels, `torch` its layers, unit by unit, "
        "`batched` torch's layers for several units at once, `auto` kernels where they exist, else "
        "`batched` where the model allows it. Results name the kernel, since their last bits "
        "depend on it.",
    )
    checkpoint_every: Count = machine_field(5, "Rounds between checkpoints.", "rounds")
    tensorboard: bool = machine_field(False, "Write TensorBoard events (extra `tracking`).")
    mlflow: bool = machine_field(False, "Log to MLflow (extra `tracking`).")
