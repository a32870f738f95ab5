"""What nodes keep between rounds: optimisers, own training, and the account of privacy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.config import Config
from camu.deploy.deployment import Deployment
from camu.deploy.messages import (
    AT_NODE,
    Task,
    read_result,
    read_task,
    write_report,
    write_task,
)
from camu.deploy.node_app import SPENT, _kept_node
from camu.deploy.server.app import serve
from camu.errors import InputError
from camu.learning.configured import model_layout, seeded
from camu.learning.job import Job, OwnTraining
from camu.learning.weights import Weights
from camu.schemes import make_scheme
from camu.simulation import simulate
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.world import build_world
from helpers.configs import small
from helpers.nodes import report_of, result_of, wait_without_time

MOMENTUM = {"training__momentum": 0.9, "training__optimiser_state": "keep"}
Answer = Callable[[int, Any], Any]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_without_time(monkeypatch)


def contexts(deployment: Deployment, folder: Path, **options: Any) -> dict[int, Any]:
    """Two nodes of a trial with directories of their own; a process is as good as a new one."""
    table = deployment.to_run_config()
    return {
        number: SimpleNamespace(
            run_config=table,
            node_config={
                "partition-id": number,
                "num-partitions": 2,
                "state": str(folder / f"state-{number}"),
                **options,
            },
        )
        for number in (0, 1)
    }


def answering(nodes: dict[int, Any]) -> Answer:
    def answer(node: int, message: Any) -> Any:
        if message.metadata.message_type == "query":
            return write_report(report_of(nodes[node]))
        return result_of(message.content, nodes[node])

    return answer


def deployment_of(config: Config, folder: Path, granularity: Any = "leader") -> Deployment:
    return Deployment(config, str(folder), granularity, nodes=2)


@pytest.mark.slow
@pytest.mark.parametrize("granularity", ["leader", "device"])
def test_optimisers_kept_at_nodes_go_on_as_in_a_simulation(
    fake_grid: Any, tmp_path: Path, granularity: str
) -> None:
    config = small(run__rounds=3, training__normalisation="none", **MOMENTUM)
    deployment = deployment_of(config, tmp_path / "nodes", granularity)
    nodes = contexts(deployment, tmp_path)
    serve(fake_grid(nodes, answering(nodes)), deployment)
    run_in_directory(config, RunDirectory(tmp_path / "here"))
    found, wanted = (RunDirectory(tmp_path / name).read_history() for name in ("nodes", "here"))
    if granularity == "leader":
        assert found.weights_sha256 == wanted.weights_sha256
    assert found.final.loss == pytest.approx(wanted.final.loss, abs=1e-6)
    reset = simulate(
        build_world(config.replace({"training.optimiser_state": "reset"})), make_scheme(config)
    )
    assert reset.history.final.loss != pytest.approx(wanted.final.loss, abs=1e-4)


@pytest.mark.slow
def test_a_round_that_nodes_had_trained_before_the_server_ended_gives_the_same_bits(
    fake_grid: Any, tmp_path: Path
) -> None:
    config = small(run__rounds=4, training__normalisation="none", **MOMENTUM)
    whole = simulate(build_world(config), make_scheme(config)).history
    deployment = deployment_of(config, tmp_path / "nodes")
    nodes = contexts(deployment, tmp_path)
    honest, trained = answering(nodes), list[int]()

    def fails(node: int, message: Any) -> Any:
        reply = honest(node, message)
        if message.metadata.message_type == "train":
            trained.append(node)
        if len(trained) == 6:  # both nodes have trained in the third round
            raise KeyboardInterrupt
        return reply

    with pytest.raises(KeyboardInterrupt):
        serve(fake_grid(nodes, fails), deployment)
    _kept_node.cache_clear()  # nodes are started again, too
    again = Deployment(config, deployment.out, nodes=2, resume=True)
    assert again.identity == deployment.identity
    history = serve(fake_grid(nodes, honest), again)
    assert history.weights_sha256 == whole.weights_sha256


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_a_state_that_is_lost_is_said_and_the_optimiser_begins_anew(
    fake_grid: Any, tmp_path: Path, damaged: bool
) -> None:
    config = small(run__rounds=3, training__normalisation="none", **MOMENTUM)
    deployment = deployment_of(config, tmp_path / "nodes")
    nodes = contexts(deployment, tmp_path)
    honest, trained = answering(nodes), list[int]()

    def forgets(node: int, message: Any) -> Any:
        trained.append(node)
        if len(trained) == 2 + 2 * 2 + 1 and not damaged:
            shutil.rmtree(tmp_path / "state-0")
            shutil.rmtree(tmp_path / "state-1")
        elif len(trained) == 2 + 2 * 2 + 1:
            for file in tmp_path.glob("state-*/optimisers/*/*.safetensors"):
                file.write_bytes(file.read_bytes()[:-1] + b"x")
        return honest(node, message)

    history = serve(fake_grid(nodes, forgets), deployment)
    events = (tmp_path / "nodes" / "events.jsonl").read_text().splitlines()
    lost = [row["text"] for row in map(json.loads, events) if row["event"] == "optimiser-lost"]
    assert lost
    assert all(text.startswith("round 3: what the optimisers of") for text in lost)
    assert history.final.faults["refused"] == history.final.faults["silent"] == 0


def test_a_node_without_a_directory_refuses_to_keep_anything(tmp_path: Path) -> None:
    deployment = deployment_of(small(training__normalisation="none", **MOMENTUM), tmp_path)
    context: Any = SimpleNamespace(
        run_config=deployment.to_run_config(),
        node_config={"partition-id": 0, "num-partitions": 2},
    )
    task = Task(0, 20, {0: "0"}, (Job((0,), (1.0,), states=(None,)),))
    content = write_task(task, [start_of(deployment.config)])
    with pytest.raises(InputError, match="no directory for it; start it with camu deploy node"):
        result_of(content, context)


def start_of(config: Config) -> Weights:
    model = seeded(config)
    return model.weights() if hasattr(model, "weights") else Weights.of(model)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["fedper", "fedrep", "ditto"])
def test_personal_parts_are_trained_on_nodes_as_in_a_simulation(
    fake_grid: Any, tmp_path: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = small(run__rounds=3, training__normalisation="none", scheme__name=scheme)
    deployment = deployment_of(config, tmp_path / "nodes")
    nodes = contexts(deployment, tmp_path)
    history = serve(fake_grid(nodes, answering(nodes)), deployment)
    wanted = simulate(build_world(config), make_scheme(config)).history
    assert history.weights_sha256 == wanted.weights_sha256
    assert "what is personal travels to the server and back" in caplog.text


def test_tasks_and_results_carry_what_units_train_for_themselves() -> None:
    config = small(training__normalisation="none")
    layout, begin = model_layout(config), start_of(config)
    draw = np.random.default_rng(0)
    own = draw.normal(size=layout.parameter_count).astype(np.float32)
    mask = draw.random(layout.parameter_count) < 0.3
    job = Job(
        (3,),
        (1.0,),
        states=(AT_NODE,),
        own=OwnTraining(own, 4, proximal=0.5, only=mask, first=True),
    )
    task, (state,) = read_task(write_task(Task(2, 9, {3: "x"}, (job,)), [begin]), layout)
    assert state.parameters.tobytes() == begin.parameters.tobytes()
    found = task.jobs[0].own
    assert found is not None
    assert found.start.tobytes() == own.tobytes()
    assert found.only is not None
    assert found.only.tolist() == mask.tolist()
    assert (found.updates, found.proximal, found.first) == (4, 0.5, True)
    assert task.jobs[0].states == (AT_NODE,)


# Differential privacy.

PRIVATE = {
    "training__dp_unit": "sample",
    "training__dp_noise": 4.0,
    "training__model": "logistic",
    "training__normalisation": "none",
    "scheme__name": "fedavg",
}


def private(folder: Path, **options: Any) -> tuple[Deployment, dict[int, Any]]:
    pytest.importorskip("dp_accounting")
    deployment = deployment_of(small(**PRIVATE), folder / "nodes")
    return deployment, contexts(deployment, folder, **options)


def account_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "privacy.json").read_text())
    return found


@pytest.mark.slow
def test_nodes_count_what_they_release_as_the_server_does(fake_grid: Any, tmp_path: Path) -> None:
    deployment, nodes = private(tmp_path)
    history = serve(fake_grid(nodes, answering(nodes)), deployment)
    assert history.final.epsilon
    assert np.isnan([record.loss for record in history.records]).sum() == 0  # of the test samples
    devices = account_of(tmp_path / "state-0")["devices"]
    assert sorted(map(int, devices)) == list(range(0, 20, 2))
    # Two rounds of one step on a fifth of the samples each.
    assert {row["times"] for one in devices.values() for row in one["releases"]} == {2}
    worst = max(
        one["epsilon"]
        for n in (0, 1)
        for one in account_of(tmp_path / f"state-{n}")["devices"].values()
    )
    assert worst == pytest.approx(history.final.epsilon, rel=1e-9)
    assert (tmp_path / "state-0").stat().st_mode & 0o077 == 0


def answer_of(config: Config, context: Any, nonce: str = "a", scale: float = 1.0) -> Any:
    begin = start_of(config)
    begin = begin.with_parameters(begin.parameters * np.float32(scale))
    task = Task(0, 20, {0: "0"}, (Job((0,), (1.0,)),), nonce)
    content = result_of(write_task(task, [begin]), context)
    (found,) = read_result(content, task, begin)
    return found


def test_the_noise_is_the_nodes_own_and_the_same_task_has_the_same_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment, nodes = private(tmp_path)
    config = deployment.config
    first = answer_of(config, nodes[0])
    assert np.isnan(first.loss)  # an exact loss would be a release
    (device,) = account_of(tmp_path / "state-0")["devices"].values()
    assert f"round 1: epsilon {device['epsilon']:.4g} at delta 1e-05" in capsys.readouterr().out
    again = answer_of(config, nodes[0], nonce="b")
    assert first.weights.parameters.tobytes() == again.weights.parameters.tobytes()
    assert account_of(tmp_path / "state-0")["devices"]["0"]["releases"][0]["times"] == 1
    answer_of(config, nodes[0], scale=1.0 + 1e-6)
    assert account_of(tmp_path / "state-0")["devices"]["0"]["releases"][0]["times"] == 2
    # Another node with the same data has another secret, so the server cannot know the noise.
    (tmp_path / "state-0" / "noise.secret").unlink()
    other = answer_of(config, nodes[0])
    assert not np.allclose(first.weights.parameters, other.weights.parameters)


@pytest.mark.slow
def test_the_noise_of_a_node_has_the_configured_size(tmp_path: Path) -> None:
    deployment, nodes = private(tmp_path)
    quiet = deployment_of(deployment.config.replace({"training.dp_noise": 1e-9}), tmp_path / "q")
    silent = contexts(quiet, tmp_path / "quiet")[0]
    answers = [answer_of(deployment.config, nodes[0], scale=1 + n * 1e-6) for n in range(8)]
    plain = answer_of(quiet.config, silent)
    changes = [one.weights.parameters - plain.weights.parameters for one in answers]
    training, held = deployment.config.training, build_world(deployment.config).devices.samples[0]
    batch = int(training.batch * held)
    wanted = training.learning_rate * training.dp_noise * training.dp_clip / batch
    assert np.std(changes) == pytest.approx(wanted, rel=0.1)  # batches differ a little, too


@pytest.mark.slow
def test_an_owner_refuses_above_a_limit_of_his_own(fake_grid: Any, tmp_path: Path) -> None:
    deployment, nodes = private(tmp_path)
    probe = answering(nodes)
    serve(fake_grid(nodes, probe), deployment)
    devices = account_of(tmp_path / "state-0")["devices"]
    (share, one, two) = (devices["0"]["releases"][0]["share"], *epsilons(devices["0"]))
    assert share < 1000
    limit = (one + two) / 2
    config = deployment.config
    limited = contexts(
        deployment_of(config, tmp_path / "two"), tmp_path / "b", **{"privacy-limit": limit}
    )
    history = serve(fake_grid(limited, answering(limited)), deployment_of(config, tmp_path / "two"))
    used = [record.units for record in history.records]
    assert used[0] == 0
    assert 0 < used[1] <= 20
    assert history.records[2].faults["refused"] >= 10  # all of device 0's kind
    for one in account_of(tmp_path / "b" / "state-0")["devices"].values():
        assert one["epsilon"] <= limit


def epsilons(device: dict[str, Any]) -> tuple[float, float]:
    """Of one round and of two rounds, computed anew."""
    import dp_accounting

    (row,) = device["releases"]
    found = []
    for times in (1, 2):
        accountant = dp_accounting.rdp.RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
        )
        event = dp_accounting.SampledWithoutReplacementDpEvent(
            1000, row["share"], dp_accounting.GaussianDpEvent(row["noise"] / 2)
        )
        accountant.compose(event, times)
        found.append(accountant.get_epsilon(1e-5))
    assert found[1] == pytest.approx(device["epsilon"], rel=1e-9)
    return found[0], found[1]


def test_a_limit_refuses_runs_without_privacy_and_exact_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deployment, _ = private(tmp_path)
    plain = deployment_of(
        deployment.config.replace({"training.dp_unit": "none", "training.dp_noise": 1.0}),
        tmp_path / "x",
    )
    (context, _) = contexts(plain, tmp_path, **{"privacy-limit": 5.0}).values()
    assert "the owner of this node limits epsilon to 5" in report_of(context).problem
    np.save(tmp_path / "a-images.npy", np.zeros((4, 8, 8), np.uint8))
    np.save(tmp_path / "a-labels.npy", np.arange(4))
    own = {
        "devices": "a",
        "data": str(tmp_path),
        "state": str(tmp_path / "s"),
        "privacy-limit": 5.0,
    }
    context = SimpleNamespace(run_config=deployment.to_run_config(), node_config=own)
    assert "start it without --exact-labels" in report_of(context).problem
    (tmp_path / "key").write_bytes(b"secret")
    context.node_config = {**own, "epsilon": 3.0, "secret": str(tmp_path / "key")}
    assert report_of(context).problem == SPENT  # without numbers
    assert "would reach epsilon 6" in caplog.text  # two counts of a sample change
    context.node_config |= {"epsilon": 1.0}
    assert report_of(context).problem == ""


def test_a_task_that_would_show_its_noise_is_refused(tmp_path: Path) -> None:
    deployment, nodes = private(tmp_path)
    begin = start_of(deployment.config)
    task = Task(0, 20, {0: "0"}, (Job((0,), (1.0,)), Job((0,), (1.0,))))
    with pytest.raises(InputError, match="trains a device twice"):
        result_of(write_task(task, [begin, begin]), nodes[0])
    own = Task(0, 20, {0: "0"}, (Job((0,), (1.0,), own=OwnTraining(begin.parameters)),))
    with pytest.raises(InputError, match="without noise on what they send"):
        result_of(write_task(own, [begin]), nodes[0])
