"""FedLamp: local updates and compression are adapted together, so that all finish together."""

from dataclasses import dataclass

import numpy as np

from camu.arrays import Float64
from camu.planning.codecs import Sparse
from camu.planning.groups import make_plan, single_devices
from camu.schemes.contract import Count, Plan, PositiveShare, Scheme, State, View, World


@dataclass(frozen=True)
class FedLamp(Scheme):
    """Slow devices do fewer updates and send fewer entries, with memory of what was left out."""

    fastest_updates: Count = 5  # tau of the fastest device
    share_per_update: PositiveShare = 0.1  # v: a device with tau updates sends the share v tau
    smoothing: PositiveShare = 0.5  # weight of the newest measurement
    name = "fedlamp"
    tunable = {"fastest_updates": (1, 20, "log"), "share_per_update": (0.01, 0.3, "log")}
    family = "compression"
    citation = "Xu et al., FedLamp, IEEE TMC 2022"
    simplified = [
        "the fastest device's updates are given; the original searches them with a bound whose "
        "constants are not known here",
    ]
    choices = [
        "weights in proportion to sqrt(tau), as two implementations have it",
        "time for sending is measured with the queue of `tdma`; computing time is known",
    ]

    def plan(self, world: World) -> Plan:
        """One device per unit; times are those of mean channels."""
        groups = single_devices(world)
        plan = make_plan(self, groups, groups.sample_weights)
        return self.decided(plan, full_seconds(plan)).repriced(world)

    def revise(self, view: View, state: State) -> Plan | None:
        """Note how long sending took, and decide again."""
        send = state.setdefault("send", full_seconds(view.plan))
        for arrival in view.arrived:
            unit = view.plan.units[arrival.unit]
            assert isinstance(unit.codec, Sparse)
            seen = (arrival.seconds - unit.ready_seconds) / unit.codec.share
            send[arrival.unit] += self.smoothing * (seen - send[arrival.unit])
        return self.decided(view.plan, send)

    def decided(self, plan: Plan, send: Float64) -> Plan:
        """tau_i such that tau_i (mu_i + v beta_i) is that of the fastest, rounded down."""
        compute = np.array([unit.per_update.compute_seconds for unit in plan.units])
        pace = compute + self.share_per_update * send
        counts = np.floor(self.fastest_updates * pace.min() / pace + 1e-9)
        counts = np.maximum(counts, 1).astype(int)
        weights = np.sqrt(counts) / np.sqrt(counts).sum()
        shares = np.minimum(1.0, self.share_per_update * counts)
        return plan.with_columns(
            weight=weights.tolist(),
            local_updates=counts.tolist(),
            codec=map(Sparse, shares.tolist()),
        )


def full_seconds(plan: Plan) -> Float64:
    """beta_i: seconds to send every entry of the update with its index."""
    bits = Sparse(1.0).bits(plan.parameters)
    return np.asarray(plan.column("uplink_seconds") * (bits / plan.column("payload_bits")))
