"""The Flower ServerApp: asks the nodes who they are, plans, and runs the round loop on them.

The devices of nodes that come late join the plan at the end of a round.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from camu.config import Config
from camu.data import dataset_spec, load_configured
from camu.deploy.deployment import CheckedRun, Deployment, check_run
from camu.deploy.messages import name_some
from camu.deploy.node_data import read_own
from camu.deploy.server.alarm import Alarm
from camu.deploy.server.fleet import (
    assign,
    device_ids,
    load_reports,
    plan_known,
    reported_world,
    save_reports,
)
from camu.deploy.server.mailbox import Mailbox
from camu.deploy.server.registry import NodeRegistry
from camu.deploy.server.trainer import NodeTrainer
from camu.deploy.status import Journal, RoundStatus
from camu.errors import CamuError, InputError
from camu.files import locked
from camu.learning.engine import Engine, Samples
from camu.planning.plan import Plan
from camu.schemes import Scheme
from camu.simulation.directory import keep_in_directory
from camu.simulation.history import History, Record
from camu.simulation.result import judged_by
from camu.simulation.run import Callback, Run
from camu.world import build_world, with_data

log = logging.getLogger("camu.deploy")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One run, from the query to the summary, or from its checkpoint."""
    deployment = Deployment.from_run_config(context.run_config)
    with _log_file(Path(deployment.out) / "server.log"):
        try:
            serve(grid, deployment, context.run_id)
        except CamuError as error:
            log.error("%s", error)
            raise


def serve(grid: Grid, deployment: Deployment, run: int = 0) -> History:
    """Run a deployment on the nodes of a grid and keep everything in its directory."""
    with locked(Path(deployment.out)):
        checked = check_run(deployment)
        journal = Journal(checked.directory.path, run)
        try:
            return _serve_locked(grid, deployment, checked, journal)
        except (SystemExit, KeyboardInterrupt):  # so the SuperLink ends a server
            text = "the run was stopped; camu deploy run --resume continues it"
            journal.event("run-stopped", text)
            journal.update(state="stopped", waiting_for=[])
            raise
        except BaseException as error:
            text = str(error) or type(error).__name__
            journal.event("run-failed", f"the run has failed: {text}")
            journal.update(state="failed", error=text)
            raise


def _serve_locked(
    grid: Grid, deployment: Deployment, checked: CheckedRun, journal: Journal
) -> History:
    directory, scheme, start, manifest = checked
    config = deployment.config
    restarts = int(directory.exists())
    ids, classes = device_ids(config), dataset_spec(config.data).classes
    mailbox = Mailbox(grid)
    registry = NodeRegistry(
        mailbox, classes, deployment.deadline_seconds, ids, journal, deployment.most_samples
    )
    quorum = deployment.devices_needed(len(ids))
    journal.update(state="waiting", scheme=scheme.name, quorum=quorum, devices=len(ids))
    kept = directory.path / "nodes.json"
    registry.reports = load_reports(kept, config) if restarts else {}
    if registry.reports:
        registry.wait_for_known(deployment.deadline_seconds)
    else:
        registry.wait_for_quorum(quorum, deployment.wait_seconds, deployment.nodes)
        save_reports(kept, registry.reports)
    world = reported_world(config, registry.reports, deployment.measured)
    if directory.exists() and directory.plan.exists():
        plan = directory.read_plan()
    else:
        plan = plan_known(world, scheme, registry.known(), deployment.measured, deployment.clip)
    hosts = assign(registry.reports, plan, ids, deployment.granularity, deployment.is_secure)
    with _evaluator(config, deployment.test_data) as engine:
        faults = Counter(restarts=restarts)
        trainer = NodeTrainer(deployment, mailbox, registry, hosts, ids, engine, quorum, faults)
        alarm = Alarm(journal, deployment.granularity == "device")
        watchers = [LateNodes(trainer, scheme, kept), alarm, RoundStatus(journal)]

        def keep(watchers: Sequence[Callback]) -> History:
            # A round on nodes is slow and a checkpoint is quick, so every round gets one.
            return keep_in_directory(
                *(world, plan, scheme, trainer, directory, watchers),
                checkpoint_every=1,
                facts=lambda: _facts(registry),
                start=start,
                manifest=manifest,
            )

        try:
            return keep(watchers)
        except (SystemExit, KeyboardInterrupt):
            if directory.checkpoints():
                keep([_Stop()])  # its last complete round becomes the result
            raise


@dataclass(eq=False)
class LateNodes(Callback):
    """Plans again when nodes have reported devices that the plan was made without.

    The number of units and their members can change, so a scheme's own state and what units
    keep start again, and units on their way are given up.
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
        reports, how = self.trainer.registry.reports, self.trainer.deployment
        self.trainer.hosts = assign(reports, plan, self.trainer.ids, how.granularity, how.is_secure)

    def _join(self, run: Run) -> None:
        registry = self.trainer.registry
        known, renewed = registry.known(), {registry.ids.index(name) for name in registry.renewed}
        registry.renewed.clear()
        self.planned -= renewed  # the plan was made for what another key had reported
        new = [k for k in known if k not in self.planned]
        if not new:
            return
        self.planned = frozenset(known)
        names = name_some([self.trainer.ids[k] for k in new])
        deployment, reports = self.trainer.deployment, self.trainer.registry.reports
        world = reported_world(deployment.config, reports, deployment.measured)
        try:
            plan = plan_known(world, self.scheme, known, deployment.measured, deployment.clip)
            how = deployment.granularity, deployment.is_secure
            hosts = assign(reports, plan, self.trainer.ids, *how)
        except InputError as error:
            log.warning("%s cannot join; the plan stays as it is: %s", names, error)
            return
        save_reports(self.reports, reports)  # before the checkpoint that needs them
        run.world = world
        self.trainer.hosts = hosts
        if not renewed and [u.members for u in plan.units] == [u.members for u in run.plan.units]:
            return  # the scheme leaves these devices out
        self.trainer.give_up()
        run.in_flight.clear()
        run.state.clear()
        run.kept.clear()
        run.plan, run.revised = plan, True
        self.trainer.joined += [self.trainer.ids[k] for k in new]
        text = (
            f"after round {run.round} {names} joined; the plan was made again for {len(known)} of "
            f"{len(self.trainer.ids)} devices, with {len(plan.units)} units"
        )
        run.notes.append(text)
        log.info("%s", text)
        self.trainer.registry.journal.event("plan-made-again", text)


class _Stop(Callback):
    """Ends a run before another round."""

    def on_start(self, run: Run) -> None:
        """Stop at once."""
        run.stop("stopped")


def _facts(registry: NodeRegistry) -> dict[str, Any]:
    """What the summary says of the nodes: kernels, how joules were found, noise on label counts."""
    devices = [device for report in registry.reports.values() for device in report.devices]
    kernels = {report.provenance.get("kernel", "?") for report in registry.reports.values()}
    noise = {name: report.epsilon for name, report in sorted(registry.reports.items())}
    return {
        "kernel": ", ".join(sorted(kernels)),  # of the nodes: the server only evaluates
        "devices_by_joules_source": Counter(device.joules_source for device in devices),
        "label_count_epsilon": noise,  # by node; None: exact counts
    }


def _evaluator(config: Config, test_data: str) -> Engine:
    """An engine that knows the test samples and no training data."""
    spec = dataset_spec(config.data)
    test: Samples
    federation = None
    if test_data:
        test = read_own(test_data, "test", spec)
    else:
        federation = with_data(build_world(config)).federation if config.data.standardise else None
        dataset = load_configured(config.data) if federation is None else federation.dataset
        test = (dataset.test_inputs, dataset.test_targets)
    rows = judged_by(config, len(test[0]))
    test = test[0][rows], np.asarray(test[1])[rows]
    scaling = federation.dataset.scaling if federation else None
    return Engine.from_config(config, test=test, scaling=scaling)


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """Write the server's log to a file in the run directory; Flower drops a ServerApp's output."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); choose another --out"
        ) from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("camu")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()
