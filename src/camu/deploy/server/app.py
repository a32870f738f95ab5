"""The Flower ServerApp: asks the nodes who they are, plans, and runs the round loop on them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from camu.config import Config
from camu.data import dataset_spec, load
from camu.deploy.deployment import Deployment, make_deployable_scheme
from camu.deploy.few_repeats import FewRepeats
from camu.deploy.mailbox import Mailbox
from camu.deploy.own_data import read_own
from camu.deploy.server.fleet import (
    assign,
    device_ids,
    load_reports,
    plan_known,
    reported_world,
    save_reports,
)
from camu.deploy.server.joining import Joining
from camu.deploy.server.journal import Journal, RoundStatus
from camu.deploy.server.registry import NodeRegistry
from camu.deploy.server.trainer import NodeTrainer
from camu.errors import CamuError, InputError
from camu.files import locked
from camu.learning.engine import Engine, Samples
from camu.schemes import Scheme
from camu.simulation.directory import (
    RunDirectory,
    check_directory,
    keep_in_directory,
)
from camu.simulation.history import History
from camu.simulation.starting import Start, read_start

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
    directory = RunDirectory(Path(deployment.out))
    with locked(directory.path):
        first = read_start(Path(deployment.start), deployment.config) if deployment.start else None
        check_directory(deployment.config, directory, deployment.resume, first)
        scheme = make_deployable_scheme(deployment.config)
        journal = Journal(directory.path, run)
        try:
            return _serve_locked(grid, deployment, directory, scheme, journal, first)
        except BaseException as error:
            text = str(error) or type(error).__name__
            journal.event("run-failed", f"the run has failed: {text}")
            journal.update(state="failed", error=text)
            raise


def _serve_locked(
    grid: Grid,
    deployment: Deployment,
    directory: RunDirectory,
    scheme: Scheme,
    journal: Journal,
    first: Start | None,
) -> History:
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
    if directory.plan.exists():
        plan = directory.read_plan()
    else:
        plan = plan_known(world, scheme, registry.known(), deployment.measured)
    hosts = assign(registry.reports, plan, ids, deployment.granularity)
    with _evaluator(config, deployment.test_data) as engine:
        faults = Counter(restarts=restarts)
        trainer = NodeTrainer(deployment, mailbox, registry, hosts, ids, engine, quorum, faults)
        watchers = [Joining(trainer, scheme, kept), RoundStatus(journal)]
        # A round on nodes is slow and a checkpoint is quick, so every round gets one.
        return keep_in_directory(
            world, plan, scheme, trainer, directory, watchers, 1, lambda: _facts(registry), first
        )


def _facts(registry: NodeRegistry) -> dict[str, Any]:
    """What the summary says of the nodes: how joules were found, and the noise on label counts."""
    devices = [device for report in registry.reports.values() for device in report.devices]
    noise = {name: report.epsilon for name, report in sorted(registry.reports.items())}
    return {
        "devices_by_joules_source": Counter(device.joules_source for device in devices),
        "label_count_epsilon": noise,  # by node; None: exact counts
    }


def _evaluator(config: Config, test_data: str) -> Engine:
    """An engine that knows the test samples and no training data."""
    spec = dataset_spec(config.data)
    test: Samples
    if test_data:
        test = read_own(test_data, "test", spec)
    else:
        dataset = load(config.data.dataset, config.data.directory)
        test = (dataset.test_images, dataset.test_labels)
    return Engine.from_config(config, test=test)


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
    handler.addFilter(FewRepeats())
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
