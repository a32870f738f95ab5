"""A-DSGD: sparse updates in few measurements that add up in the air, and AMP at the server."""

from dataclasses import dataclass

from camu.planning.projection import Projected
from camu.schemes.contract import Count, Plan, Positive, PositiveShare, World
from camu.schemes.local_sgd import LocalSgd


@dataclass(frozen=True)
class ADsgd(LocalSgd):
    """Devices send their largest entries as a random projection; the server finds the sum again."""

    local_updates: Count = 1
    measured_share: PositiveShare = 0.5  # s / q
    sent_share: PositiveShare = 0.01  # entries that a device sends, of all
    amp_threshold: Positive = 1.4  # in standard deviations
    steps: Count = 20  # of AMP
    name = "a-dsgd"
    family = "over the air"
    citation = (
        "Amiri, Gündüz, Machine learning at the wireless edge: distributed stochastic gradient "
        "descent over-the-air, IEEE TSP 2020"
    )
    simplified = ["constant power; the mean of the first updates is not removed"]
    choices = [
        "each device inverts its channel; amplitudes also have the weights by data size, so that "
        "the mean has weights w_k / ||(A x_k, pilot)||; the original's are 1 / ||(A x_k, 1)||",
        "the pilot is the learning rate, as if gradients were sent with a pilot of 1",
        "the base station listens with one antenna",
        "a projection by signs and cosines in place of a normal matrix, which would need 1 GB",
    ]

    def plan(self, world: World) -> Plan:
        plan = super().plan(world)
        air = Projected(
            seed=world.config.run.seed,
            parameters=plan.parameters,
            measured_share=self.measured_share,
            sent_share=self.sent_share,
            threshold=self.amp_threshold,
            steps=self.steps,
            pilot=world.config.training.learning_rate,
        )
        return plan.over_the_air(air)
