"""Nodes that come late: their devices join the plan at the end of a round."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from camu.deploy.server.fleet import assign, plan_known, reported_world, save_reports
from camu.deploy.server.registry import name_some
from camu.deploy.server.trainer import NodeTrainer
from camu.errors import InputError
from camu.planning.plan import Plan
from camu.schemes import Scheme
from camu.simulation.history import Record
from camu.simulation.run import Callback, Run

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Joining(Callback):
    """Plans again when nodes have reported devices that the plan was made without.

    The number of units and their members can change, so a scheme's own state starts again, and
    units on their way are given up.
    """

    trainer: NodeTrainer
    scheme: Scheme
    reports: Path  # where the reports are kept
    planned: frozenset[int] = frozenset()  # devices that were known when the plan was made

    def on_start(self, run: Run) -> None:
        """Take in what was reported before a restart of the server."""
        self.planned = frozenset(k for unit in run.plan.units for k in unit.members)
        self._assign(run.plan)
        self._join(run)

    def on_round(self, run: Run, record: Record) -> None:
        """Take in what was reported during the round."""
        if run.stopped is None:
            self._join(run)
            if not set(self.trainer.hosts.values()) <= self.trainer.registry.reports.keys():
                self._assign(run.plan)  # a node has taken the place of another

    def _assign(self, plan: Plan) -> None:
        """Let each device be trained by the node that holds it now."""
        reports, granularity = self.trainer.registry.reports, self.trainer.deployment.granularity
        self.trainer.hosts = assign(reports, plan, self.trainer.ids, granularity)

    def _join(self, run: Run) -> None:
        known = self.trainer.registry.known()
        new = [k for k in known if k not in self.planned]
        if not new:
            return
        before, self.planned = self.planned, frozenset(known)
        names = name_some([self.trainer.ids[k] for k in new])
        deployment, reports = self.trainer.deployment, self.trainer.registry.reports
        world = reported_world(deployment.config, reports, deployment.measured)
        try:
            plan = plan_known(world, self.scheme, known, deployment.measured)
            hosts = assign(reports, plan, self.trainer.ids, deployment.granularity)
        except InputError as error:
            log.warning("%s cannot join; the plan stays as it is: %s", names, error)
            return
        save_reports(self.reports, reports)  # before the checkpoint that needs them
        run.world = world
        self.trainer.hosts = hosts
        if _members(plan) == _members(run.plan):
            return  # the scheme leaves these devices out
        self.trainer.give_up()
        run.flights.clear()
        run.state.clear()
        run.plan, run.revised = plan, True
        self.trainer.joined += [self.trainer.ids[k] for k in new if k not in before]
        text = (
            f"after round {run.round} {names} joined; the plan was made again for {len(known)} of "
            f"{len(self.trainer.ids)} devices, with {len(plan.units)} units"
        )
        run.notes.append(text)
        log.info("%s", text)
        self.trainer.registry.journal.event("plan-made-again", text)


def _members(plan: Plan) -> Sequence[tuple[int, ...]]:
    return [unit.members for unit in plan.units]
