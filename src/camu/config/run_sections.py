"""The sections on training, contribution, scheme, allocation and run."""

from __future__ import annotations

from typing import Literal

from camu.config.fields import LARGEST_WATTS, MOST, SMALLEST_WATTS, Section, field


class TrainingConfig(Section):
    """Model and local training."""

    model: str = field(
        "cnn",
        "`cnn` (the paper's), `resnet8` (group norm, for colour images), `logistic`, or your own "
        "torch module as `module:Class`.",
    )
    normalisation: Literal["batch", "group", "none"] = field(
        "batch", "Normalisation layer of the CNN."
    )
    learning_rate: float = field(0.5e-3, "Learning rate lambda of plain SGD.", "1", gt=0, le=1e6)
    batch: float = field(
        0.2,
        "Mini-batch: at most 1 is a fraction of the device's data, above 1 a number of samples.",
        "1 or samples",
        gt=0,
        le=MOST,
    )
    local_update: Literal["step", "epoch"] = field(
        "step",
        "One local update: `step` one mini-batch per member, averaged at the leader; "
        "`epoch` all mini-batches of each member, then averaged.",
    )
    l2: float = field(0.0, "Weight of the l2 penalty (l2/2)*||w||^2.", "1", ge=0, le=1e6)
    server_momentum: float = field(
        0.0,
        "Momentum of the server on the aggregated update, for any scheme; 0: none.",
        "1",
        ge=0,
        lt=1,
    )
    max_update_norm: float = field(
        1e3,
        "Updates with a larger norm are refused as faulty; inf refuses only nan and inf.",
        "1",
        gt=0,
        allow_inf_nan=True,
    )


class ContributionConfig(Section):
    """The contribution of a unit, theta_c = |D_c| e^(1/W_c)."""

    distance: Literal["wasserstein", "tv"] = field(
        "wasserstein", "Distance of label distributions: on label indices, or total variation."
    )
    w_min: float = field(
        0.5, "Smallest distance W_c used in e^(1/W_c); 0 is the printed formula.", "1", ge=0, le=1e9
    )


class SchemeConfig(Section):
    """Which scheme, and its parameters."""

    name: str = field("camu", "Scheme by name (`camu schemes`), or your own as `module:Class`.")
    threshold: float | None = field(
        None,
        "Contribution threshold theta_th as a number; where set it replaces threshold_quantile.",
        "samples",
        ge=0,
        allow_inf_nan=True,
    )
    threshold_quantile: float = field(
        0.5, "Threshold as a quantile of the clusters' contributions.", "1", ge=0, le=1
    )
    max_extra_updates: int = field(
        4, "Most extra local updates n_max of a unit per round.", "updates", ge=0, le=1_000_000
    )
    local_updates: int = field(
        2,
        "Local updates H per round of schemes that run the same number in all units.",
        "updates",
        ge=1,
        le=1_000_000,
    )
    aggregation: Literal["mean", "median", "trimmed-mean", "multi-krum"] = field(
        "mean", "How updates are combined: weighted by the plan, or by a robust rule."
    )
    faulty_share: float = field(
        0.2, "Share of units that a robust rule takes to be wrong.", "1", ge=0, lt=0.5
    )
    plan_seconds: float = field(
        600.0,
        "Longest time that a scheme of your own may take to plan.",
        "s",
        decides="nothing",
        gt=0,
        le=1e9,
    )
    parameters: dict[str, bool | int | float | str] = field(
        {}, "Parameters of the scheme that have no key of their own, by field name."
    )


class AllocationConfig(Section):
    """The joint optimisation of powers and update counts (problem P1)."""

    solver: str = field(
        "exact", "Solver of P1: `exact`, `ppo`, `latency`, or your own function as `module:name`."
    )
    bound: Literal["theorem1", "corrected"] = field(
        "corrected", "Convergence bound that P1 minimises: as printed, or corrected."
    )
    power_law: Literal["power", "amplitude"] = field(
        "power", "p in watts (noise term 1/p), or the printed amplitude (1/p^2)."
    )
    energy_joules: float | None = field(
        None,
        "Energy budget per round; unset: what `compute-rounds` spends at 0.5 W per leader.",
        "J",
        ge=1e-30,
        le=1e30,
    )
    max_total_power_watts: float | None = field(
        None,
        "Cap on the sum of the leaders' powers; unset: none.",
        "W",
        ge=SMALLEST_WATTS,
        le=LARGEST_WATTS,
    )
    updates_charged: Literal["all", "literal"] = field(
        "all", "Energy counts all N_c updates, or the printed n_c, so that the first is free."
    )
    ppo_reward: Literal["current", "literal"] = field(
        "current", "Reward of the current action, or of the last round's as printed."
    )
    ppo_steps: int = field(100_000, "Environment steps of PPO training.", "steps", ge=1, le=MOST)
    convexity: float = field(
        0.01, "Strong convexity mu assumed where it is not measured.", "1", ge=1e-12, le=1e12
    )
    smoothness: float = field(
        1.0, "Smoothness L assumed where it is not measured.", "1", ge=1e-12, le=1e12
    )
    dissimilarity: float = field(
        1.0, "Gradient dissimilarity delta assumed where it is not measured.", "1", ge=1, le=1e12
    )


class RunConfig(Section):
    """Length, stopping, seed and machinery of a run."""

    seed: int = field(0, "Seed of everything random.", ge=0, lt=2**63)
    rounds: int = field(200, "Global rounds.", "rounds", decides="end", ge=1, le=MOST)
    eval_every: int = field(5, "Rounds between evaluations.", "rounds", ge=1, le=MOST)
    eval_last: int = field(
        1, "So many rounds at the end are all evaluated.", "rounds", ge=1, le=MOST
    )
    server_average: float = field(
        0.0,
        "Share of the past in a running average of the global model, which is evaluated in the "
        "last rounds (eval_last) too; 0: none.",
        "1",
        ge=0,
        lt=1,
    )
    target_accuracy: float | None = field(
        None, "Stop at this test accuracy; unset: do not.", "1", decides="end", gt=0, le=1
    )
    max_virtual_seconds: float | None = field(
        None, "Stop when the virtual clock passes this; unset: do not.", "s", decides="end", gt=0
    )
    max_joules: float | None = field(
        None, "Stop when the fleet has spent this; unset: do not.", "J", decides="end", gt=0
    )
    min_joules: float | None = field(
        None,
        "Continue after `rounds` until the fleet has spent this, and evaluate at 80, 85, 90, 95 "
        "and 100 % of it; unset: do not.",
        "J",
        decides="end",
        gt=0,
    )
    min_virtual_seconds: float | None = field(
        None,
        "Continue after `rounds` until the virtual clock passes this, and evaluate at 80, 85, 90, "
        "95 and 100 % of it; unset: do not.",
        "s",
        decides="end",
        gt=0,
    )
    patience: int | None = field(
        None,
        "Stop after this many evaluations without a better accuracy; unset: do not.",
        decides="end",
        ge=1,
        le=MOST,
    )
    checkpoint_every: int = field(
        5, "Rounds between checkpoints.", "rounds", decides="nothing", ge=1, le=MOST
    )
    engine: Literal["local", "ray"] = field(
        "local",
        "What trains units: workers of this process, or actors of a Ray cluster (extra `ray`).",
        decides="nothing",
    )
    workers: int = field(
        0,
        "Training workers; 0 is one per core, with `ray` one per processor of the cluster.",
        "workers",
        decides="nothing",
        ge=0,
        le=4096,
    )
    device: Literal["auto", "cpu", "cuda"] = field("auto", "Where gradients are computed.")
    kernel: Literal["auto", "native", "torch"] = field(
        "auto",
        "What computes gradients: `native` compiled kernels, `torch` its layers, `auto` the "
        "kernels where they exist. Results name the kernel, since their last bits depend on it.",
        decides="nothing",
    )
    tensorboard: bool = field(
        False, "Write TensorBoard events (extra `tracking`).", decides="nothing"
    )
    mlflow: bool = field(False, "Log to MLflow (extra `tracking`).", decides="nothing")
