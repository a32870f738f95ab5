"""When the server aggregates, and how much a late update still counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Server(Protocol):
    """The server's side of a scheme; a scheme names its own as its attribute `server`."""

    def ready(self, arrived: int, in_flight: int) -> bool:
        """Whether to aggregate now, with so many updates here and so many on their way."""
        ...

    def discount(self, staleness: int) -> float:
        """Factor on the weight of an update that started so many aggregations ago."""
        ...


@dataclass(frozen=True)
class WaitForAll:
    """Synchronous rounds: everyone starts together and the server waits for all."""

    def ready(self, arrived: int, in_flight: int) -> bool:
        """When nothing is on its way any more."""
        return in_flight == 0

    def discount(self, staleness: int) -> float:
        """No update is ever late."""
        return 1.0
