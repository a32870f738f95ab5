"""One run on Ray: the same bits as local workers, also when actors die; nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from camu.errors import CamuError, InputError
from camu.simulation import ray_session
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.manifest import Manifest
from camu.simulation.ray_session import connected, engine_session
from helpers import ray_runs
from helpers.configs import small

TESTS = Path(__file__).resolve().parents[1]
ray_test = pytest.mark.xdist_group("ray")


def environment() -> dict[str, str]:
    """This process's, with the helpers of the tests."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "300"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def end(process: subprocess.Popen[Any]) -> None:
    """End a process that this test started, and all that it started."""
    family = [psutil.Process(process.pid)] if process.poll() is None else []
    family += [child for parent in family for child in parent.children(recursive=True)]
    process.terminate()
    _, alive = psutil.wait_procs(family, timeout=20)
    for left in alive:
        left.kill()
    process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two Ray nodes of one processor each, on two loopback addresses; gives HOST:PORT."""
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    folder = tmp_path_factory.mktemp("cluster")
    address = f"127.0.0.1:{free_port()}"
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus=1"]
    command += ["--disable-usage-stats", "--object-store-memory=100000000"]
    command += ["--min-worker-port=0", "--max-worker-port=0"]
    head = ["--head", "--node-ip-address=127.0.0.1", f"--port={address.partition(':')[2]}"]
    # Ray notes a new cluster's address there; the usual place would be found by others. The names
    # of sockets below it must be short.
    home = tempfile.mkdtemp(prefix="camu-ray-")
    head += [
        f"--temp-dir={home}",
        f"--ray-client-server-port={free_port()}",
        "--include-dashboard=false",
    ]
    nodes = [head, [f"--address={address}", "--node-ip-address=127.0.0.2"]]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, options in enumerate(nodes):
            log = folder / f"node-{number}.log"
            with log.open("wb") as out:
                started.append(
                    subprocess.Popen(
                        [*command, *options],
                        cwd=folder,
                        env=environment(),
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
            while "This command will now block" not in log.read_text():
                assert started[-1].poll() is None, log.read_text()
                time.sleep(0.1)
        yield address
    finally:
        for process in reversed(started):
            end(process)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def found(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `ray_runs` printed, and nothing but that may be on its stdout."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "own_net.py").write_text(ray_runs.OWN_NET)
    (folder / "own_layers.py").write_text(ray_runs.OWN_LAYERS)
    script = TESTS / "helpers" / "ray_runs.py"
    done = subprocess.run(
        [sys.executable, script, cluster],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@ray_test
@pytest.mark.slow
def test_a_stateful_asynchronous_scheme_has_the_bits_of_local_workers(
    found: dict[str, Any],
) -> None:
    weights, records = found["stateful, local"]
    assert len(records) == 5
    assert found["stateful, ray"] == [weights, records]


@ray_test
@pytest.mark.slow
def test_actors_that_are_killed_between_and_in_rounds_change_nothing(
    found: dict[str, Any],
) -> None:
    assert found["ordered kill done"]
    # An actor on each node: a node has one processor, and the two wait for each other. Two of the
    # actors were killed, and another one finished.
    assert found["trained by"] >= 3
    assert found["own model, ray, two kills"] == found["own model, local"]


@ray_test
@pytest.mark.slow
def test_own_code_is_sent_to_actors_and_not_imported_there(found: dict[str, Any]) -> None:
    assert found["imported by"]


@ray_test
@pytest.mark.slow
def test_a_job_that_always_kills_its_actor_ends_the_run(found: dict[str, Any]) -> None:
    message = found["job that always kills"]
    assert message.startswith("CamuError: Training devices 0 in round 1 ended its worker on Ray 3")


@ray_test
@pytest.mark.slow
def test_errors_of_own_code_on_actors_read_as_locally(found: dict[str, Any]) -> None:
    assert "AttributeError: 'Net' object has no attribute 'missing'" in found["error, local"]
    assert found["error, ray"] == found["error, local"]
    line = ray_runs.OWN_NET.splitlines().index("            return images / self.missing") + 1
    assert found["error at the start"].startswith("UserCodeError: the model's forward: ")
    assert f"own_net.py, line {line}, in forward: AttributeError" in found["error at the start"]


@ray_test
@pytest.mark.slow
def test_actors_end_with_the_run(found: dict[str, Any]) -> None:
    assert found["actors left"] == 0


@ray_test
@pytest.mark.slow
def test_more_workers_than_processors_are_refused(found: dict[str, Any]) -> None:
    assert found["too many workers"].startswith(
        "InputError: machine.workers = 3: the Ray cluster has 2"
    )


@ray_test
@pytest.mark.slow
def test_the_command_on_a_cluster_prints_json_alone_and_leaves_the_cluster(
    cluster: str, tmp_path: Path
) -> None:
    config = small(scheme__name="fedavg", run__rounds=4, machine__workers=0)
    (tmp_path / "run.toml").write_text(config.to_toml())
    arguments = ["run", "-c", "run.toml", "--set", "machine.engine=ray", "--address", cluster]
    done = subprocess.run(
        [sys.executable, "-m", "camu.cli", *arguments, "--out", "ray", "--json"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    summary = json.loads(done.stdout)
    local = RunDirectory(tmp_path / "local")
    run_in_directory(config, local)
    assert summary["weights_sha256"] == local.read_summary()["weights_sha256"]
    assert (tmp_path / "ray" / "rounds.jsonl").read_text() == local.rounds.read_text()
    host, _, port = cluster.partition(":")
    socket.create_connection((host, int(port)), 5).close()


@ray_test
@pytest.mark.slow
def test_an_interrupted_run_ends_its_own_ray_and_is_resumed_locally(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    config = small(
        scheme__name="fedavg", run__rounds=2000, machine__workers=0, machine__engine="ray"
    )
    (tmp_path / "run.toml").write_text(config.to_toml())
    out = RunDirectory(tmp_path / "run")
    process = subprocess.Popen(
        [sys.executable, "-m", "camu.cli", "run", "-c", "run.toml", "--out", "run"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not out.rounds.exists() or len(out.rounds.read_text().splitlines()) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    family = psutil.Process(process.pid).children(recursive=True)
    assert any("raylet" in child.name() for child in family)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    output, errors = process.communicate()
    assert (process.returncode, output) == (130, ""), errors[-2000:]
    assert "continue with: camu run --resume" in errors
    assert psutil.wait_procs(family, timeout=60)[1] == []
    rounds = out.read_records()[-1].round + 1
    shorter = {"run.rounds": rounds, "machine.engine": "local"}
    resumed = run_in_directory(config.replace(shorter), out, resume=True)
    whole = run_in_directory(config.replace(shorter), RunDirectory(tmp_path / "whole"))
    assert resumed.weights_sha256 == whole.weights_sha256


@pytest.mark.parametrize(
    "address", ["auto", "10.0.0.5", "10.0.0.5:", ":6379", "host:0", "ray://host:10001"]
)
def test_an_incomplete_address_is_refused(address: str) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with pytest.raises(InputError, match=r"--address .*: give HOST:PORT"), connected(address):
        pass


def test_an_address_where_nothing_listens(camu: Any, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    address = f"127.0.0.1:{free_port()}"
    out = tmp_path / "run"
    done = camu("run", "--set", "machine.engine=ray", "--address", address, "--out", out)
    assert (done.code, done.out) == (1, "")
    assert f"--address {address}: no Ray cluster answers there" in done.err
    assert not out.exists()


def test_an_address_needs_the_engine() -> None:
    refused = pytest.raises(InputError, match=r"add --set machine\.engine=ray")
    with refused, engine_session(small(), "10.0.0.5:6379"):
        pass


def test_ray_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session.importlib.util, "find_spec", lambda name: None)
    refused = pytest.raises(InputError, match=r"pip install 'camu-fl\[ray\]'")
    with refused, engine_session(small(machine__engine="ray"), None):
        pass


def test_the_engine_decides_nothing_of_the_result() -> None:
    assert Manifest.of(small(machine__engine="ray")).key == Manifest.of(small()).key


def test_machines_with_other_versions_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from camu.simulation.ray_trainer import Machine

    same = {"camu": "1", "torch": "2"}
    here = Machine("a", same, "torch", "AVX2")
    here.compare(Machine("b", same, "torch", "AVX2"))
    assert caplog.text == ""
    with pytest.raises(CamuError, match=r"b has torch 3, this one has 2"):
        here.compare(Machine("b", {"camu": "1", "torch": "3"}, "torch", "AVX2"))
    here.compare(Machine("b", same, "torch", "AVX512"))
    assert "b computes with AVX512, this one with AVX2" in caplog.text
    with pytest.raises(CamuError, match=r"the kernel .native avx512.*CAMU_KERNEL=avx2"):
        here.compare(Machine("b", same, "native avx512", "AVX512"))
