"""What a scheme that adapts from round to round sees, and what it may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from camu.learning.engine import Engine
from camu.learning.weights import Weights
from camu.planning.plan import Plan
from camu.world import World


@dataclass(frozen=True, eq=False)
class View:
    """A round that has just been aggregated."""

    world: World
    plan: Plan
    engine: Engine
    round: int  # aggregations so far, this one included
    joules: float  # spent so far
    before: Weights  # the global model the units started from
    after: Weights  # the global model now
    trained: Mapping[int, Weights]  # what each unit that took part trained, by unit


class Adaptive(Protocol):
    """A scheme with a hook per round."""

    def adapt(self, view: View) -> list[int]:
        """The local updates of each unit from the next round on."""
        ...
