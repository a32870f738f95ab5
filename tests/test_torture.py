"""A short part of `make torture`: see docs/reliability.md."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from torture.__main__ import bad_inputs, finished_run
from torture.deployments import clean, left_behind, make_place
from torture.flips import flips
from torture.hostile import compared, hostile
from torture.partition import BLOCKED_FILE, open_proxy
from torture.soak import Life, longest_silence


@pytest.mark.slow
def test_bad_inputs_are_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tried, failures = bad_inputs(120, 1, tmp_path / "inputs")
    assert sum(tried.values()) == 120
    assert failures == []


@pytest.mark.slow
def test_flipped_bits_are_noticed(tmp_path: Path) -> None:
    tried, failures = flips(20, 1, tmp_path, finished_run(tmp_path / "run"))
    assert sum(tried.values()) == 20
    assert failures == []


def life(grows: float, descriptors: float = 0.0) -> Life:
    """A process of 100 MB that is watched over 100 rounds, and warms up in the first ten."""
    dice = np.random.default_rng(3)
    warm = [(r, int(5e6 * r), 10) for r in range(10)]
    late = [
        (r, int(1e8 + grows * r + dice.normal(0, 1e6)), int(20 + descriptors * r))
        for r in range(10, 100)
    ]
    return Life("node", [*warm, *late])


@pytest.mark.parametrize(
    ("one", "grows"),
    [
        (life(0.0), False),
        (life(-1e5), False),
        (life(5e5), True),
        (life(0.0, 0.2), True),
        (Life("node", [(1, 10**8, 5), (2, 10**9, 5)]), False),  # too short to judge
    ],
)
def test_a_soak_tells_growth_from_noise(one: Life, grows: bool) -> None:
    assert one.grows() is grows


def test_a_long_start_is_no_growth_and_hides_none() -> None:
    start = [(4, int(1e8 + 2e6 * n), n) for n in range(100)]  # no round is done in the meantime
    flat = [(r, int(3e8), 120) for r in range(5, 25) for _ in range(3)]
    rising = [(r, int(3e8 + 4e6 * r), 120) for r in range(5, 25) for _ in range(3)]
    assert not Life("server", [*start, *flat]).grows()
    assert Life("server", [*start, *rising]).grows()


def test_a_soak_notices_a_node_that_stays_silent() -> None:
    assert longest_silence([20, 20, 20], 20) == 0
    assert longest_silence([20, 19, 18, 20, 19], 20) == 2
    assert longest_silence([20, *[19] * 40], 20) == 40


def test_a_process_that_is_left_is_named(tmp_path: Path) -> None:
    place = make_place(tmp_path / "p")
    assert left_behind(place) == ""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    process = subprocess.Popen(command, env={**os.environ, **place.environment()})
    try:
        assert "processes left" in left_behind(place, 0.1)
    finally:
        clean(place)
        process.wait()
    assert left_behind(place) == ""


def test_keys_and_open_ports_that_are_left_are_named(tmp_path: Path) -> None:
    place = make_place(tmp_path / "p")
    with socket.create_server(("127.0.0.1", 0)) as server:
        place.ports.add(server.getsockname()[1])
        assert "ports left" in left_behind(place)
    (place.folder / "out.log").write_text("-----BEGIN PRIVATE KEY-----")
    assert left_behind(place) == "keys left: ['out.log']"
    (place.folder / "out.log").unlink()
    (place.temporary / "something").touch()
    assert left_behind(place) == "temporary files left: ['something']"


def test_a_blocked_port_holds_bytes_back_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    monkeypatch.setenv(BLOCKED_FILE, str(blocked))
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = open_proxy(3, server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", proxy)) as near:
            far, _ = server.accept()
            with far:
                for name in ("3", "all"):
                    blocked.write_text(name)
                    near.sendall(b"there")
                    far.settimeout(0.3)
                    with pytest.raises(TimeoutError):
                        far.recv(5)
                    blocked.write_text("4")
                    far.settimeout(30.0)
                    assert far.recv(5, socket.MSG_WAITALL) == b"there"
                far.sendall(b"back")
                near.settimeout(30.0)
                assert near.recv(4, socket.MSG_WAITALL) == b"back"


def test_rounds_that_are_counted_twice_are_noticed() -> None:
    whole = {"rounds": [0, 1, 2], "weights": "a", "log": "node 1 is not used: nan"}
    assert compared(whole, whole, 2) == ""
    assert "rounds" in compared({**whole, "rounds": [0, 1, 1, 2]}, whole, 2)
    assert "another model" in compared({**whole, "weights": "b"}, whole, 2)
    assert "did not complete" in compared({}, whole, 2)
    assert "does not say" in compared({**whole, "log": ""}, whole, 2)


@pytest.mark.slow
@pytest.mark.xdist_group("deployment")
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
def test_a_hostile_node_changes_nothing(tmp_path: Path) -> None:
    tried, failures = hostile(tmp_path, nodes=2, rounds=1, acts=("nan",))
    assert tried == {"nan": 1}
    assert failures == []
