"""The bits of a run: counted by hand from the plan and from who started."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from camu.errors import InputError
from camu.schemes import Clustered, FedAvg, FedPaq, Scaffold, Scheme, State, View
from camu.simulation import Record, simulate
from camu.simulation.history import measure
from camu.world import World

Tiny = Callable[..., World]


@pytest.mark.parametrize("scheme", [FedAvg(), Clustered(), Scaffold(2)])
@pytest.mark.parametrize("settings", [{}, {"radio__bits_per_parameter": 8}])
def test_every_unit_sends_its_payload(tiny: Tiny, scheme: Scheme, settings: dict[str, Any]) -> None:
    result = simulate(tiny(**settings), scheme)
    units, model = result.plan.units, result.weights.parameters.size * (8 if settings else 32)
    copies = 2 if isinstance(scheme, Scaffold) else 1
    for record in result.history.records:
        assert record.bits is not None
        assert record.bits["uplink"] == record.round * len(units) * copies * model
        gather = [u.local_updates * len(u.members) for u in units if len(u.members) > 1]
        sent = sum(gather)  # all members but the leader send, and the leader answers
        assert record.bits["gather"] == record.round * sent * model
        assert record.bits["downlink"] == record.round * model
        assert record.total_bits == sum(record.bits.values())
    assert (result.history.gather_bits == 0) == (not isinstance(scheme, Clustered))


@dataclass(frozen=True)
class Growing(FedPaq):
    """One unit in the first round, two in the second, and so on, at four bits an entry."""

    levels: int = 7

    def select(self, view: View, state: State) -> Iterable[int]:
        return view.idle[: view.round + 1]


def test_only_units_that_start_are_counted(tiny: Tiny) -> None:
    world = tiny()
    result = simulate(world, Growing())
    payload = 32 + 4 * result.weights.parameters.size
    sent = [(record.bits or {})["uplink"] for record in result.history.records]
    assert result.history.uplink_bits == sent[-1]
    assert sent == [0, payload, 3 * payload, 6 * payload]
    assert [row["uplink_bits"] for row in result.history.rows()] == sent


def test_lost_updates_and_pilots_were_sent_too(tiny: Tiny) -> None:
    class Tried(FedAvg):
        def pilot(self, pilot: Any, state: State) -> None:
            pilot.train(pilot.plan, 2)

    plain = simulate(tiny(), FedAvg()).history.final
    tried = simulate(tiny(run__rounds=1), Tried()).history.final
    lost = simulate(tiny(radio__outage_snr_db=200.0), FedAvg()).history.final
    assert lost.faults["outages"] > 0
    assert plain.bits == tried.bits == lost.bits


def test_records_of_earlier_versions_have_no_bits(tiny: Tiny) -> None:
    record = simulate(tiny(run__rounds=1), FedAvg()).history.final
    assert Record.from_dict(record.to_dict()) == record
    assert measure(record, "megabytes") == sum(record.to_dict()["bits"].values()) / 8e6
    data = {key: value for key, value in record.to_dict().items() if key != "bits"}
    older = Record.from_dict(data)
    assert older.bits is older.total_bits is None
    assert older.to_dict() == data
    with pytest.raises(InputError, match="counted no bits"):
        measure(older, "megabytes")
