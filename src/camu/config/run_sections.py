"""The sections on clustering, schemes, allocation, readings, runs and the machine."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from camu.config.fields import (
    Choice,
    Count,
    Decibels,
    SchemeName,
    Section,
    Share,
    Watts,
    field,
    machine_field,
    stopping_field,
)
from camu.plugins import is_plugin

TRACKERS = ("tensorboard", "mlflow", "wandb")  # callbacks with names of their own


def _nightly(value: object) -> object:
    """The seconds from one night to the next, if that is what a value says."""
    return 86_400.0 if value == "night" else value


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


class ContributionConfig(Section):
    """The contribution of a unit, theta_c = |D_c| e^(1/W_c)."""

    distance: Literal["wasserstein", "tv"] = field(
        "wasserstein", "Distance of label distributions: on label indices, or total variation."
    )


NotNan = Annotated[float, Field(ge=-math.inf, allow_inf_nan=True)]


class SchemeConfig(Section):
    """Which scheme, and its parameters."""

    name: SchemeName = field(
        "camu", "Scheme by name (`camu schemes`), or your own as `module:Class`."
    )
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
    every_seconds: Annotated[float | None, BeforeValidator(_nightly)] = field(
        None,
        "Each round begins at the next multiple of this; all devices draw their resting power "
        "while they take part in none (`fleet.sleep_watts`, or idle). `night` is 86400, a round a "
        "day: with `fleet.start_hour = 0` each begins at midnight. Unset: rounds follow each "
        "other, and a device pays only while it takes part.",
        "s",
        ge=1e-3,
        le=1e7,
    )
    eval_every: Count = field(5, "Rounds between evaluations.", "rounds")
    eval_last: Count = field(1, "Evaluate after each of the last so many rounds.", "rounds")
    eval_samples: Count | None = field(
        None,
        "Test samples that models are judged by, drawn once by the seed; unset: all.",
        "samples",
    )
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
    min_megabytes: float | None = stopping_field(
        None,
        "Continue after `rounds` until so much has been sent (uplinks, downlinks and gathers), and "
        "evaluate at 80, 85, 90, 95 and 100 % of it; unset: do not.",
        "MB",
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
    callbacks: tuple[str, ...] = machine_field(
        (),
        "What watches a run: `tensorboard`, `mlflow` (extra `tracking`), `wandb` (extra `wandb`), "
        "or your own camu.Callback as `module:Class`.",
        strict=False,
    )

    @field_validator("callbacks", mode="before")
    @classmethod
    def _one_callback(cls, given: Any) -> Any:
        """A single name is a list of one."""
        return (given,) if isinstance(given, str) else given

    @field_validator("callbacks")
    @classmethod
    def _known_callbacks(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for word in given:
            if word not in TRACKERS and not is_plugin(word):
                raise ValueError(
                    f"{word} is no callback; use {', '.join(TRACKERS)}, or your own as module:Class"
                )
        return given
