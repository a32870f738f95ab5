"""Speed and joules of a node: after warm-up, by median, by a meter that can be read."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.deploy import node_data
from camu.deploy.node_app import Node
from camu.deploy.node_data import Meter, find_meter, measure
from camu.errors import InputError
from helpers.configs import small


class Machine:
    """A machine whose updates take these seconds, one after the other; the last one repeats."""

    def __init__(self, *seconds: float, watts: float = 0.0) -> None:
        self.seconds, self.watts = list(seconds), watts
        self.now = self.joules = 0.0
        self.updates = 0

    def update(self) -> None:
        spent = self.seconds[min(self.updates, len(self.seconds) - 1)]
        self.now += spent
        self.joules += self.watts * spent
        self.updates += 1

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize("slow", [[], [9.0], [30, 8, 3], [40, 20, 10, 9, 8, 7, 6, 5, 4, 3, 2]])
def test_slow_first_updates_do_not_matter(slow: list[float]) -> None:
    machine = Machine(*slow, 1.0)
    assert measure(machine.update, 1000.0, clock=machine.clock).seconds == 1.0


def test_single_disturbances_do_not_matter() -> None:
    machine = Machine(*[1.0, 1.0, 7.0, 1.0, 1.0] * 700)
    assert measure(machine.update, 1000.0, clock=machine.clock).seconds == 1.0


def test_quick_updates_are_repeated_for_a_while() -> None:
    machine = Machine(*[0.004] * 20, 0.001)  # quick, and still warming up
    assert measure(machine.update, 1000.0, clock=machine.clock).seconds == pytest.approx(0.001)
    assert machine.now >= node_data.LEAST_SECONDS


def test_a_slow_machine_is_measured_within_its_budget() -> None:
    machine = Machine(100.0)
    assert measure(machine.update, 20.0, clock=machine.clock).seconds == 100.0
    assert machine.updates == 3


def test_a_machine_that_gets_ever_faster_is_not_measured_forever() -> None:
    machine = Machine(*(1e6 / (k + 1) ** 2 for k in range(9000)))
    assert measure(machine.update, 1e9, clock=machine.clock).seconds is not None
    assert machine.updates == node_data.MOST_UPDATES


def test_joules_are_those_between_two_readings() -> None:
    machine = Machine(5.0, 0.01, watts=4.0)
    meter = Meter("meter", lambda: machine.joules)
    found = measure(machine.update, 1000.0, meter, machine.clock)
    assert found.seconds == pytest.approx(0.01)
    assert found.joules == pytest.approx(0.04)
    assert found.source == "meter"


@pytest.mark.parametrize("reading", [0.0, float("nan"), float("inf")])
def test_a_meter_without_a_use_leaves_the_model(reading: float) -> None:
    machine = Machine(1.0)
    found = measure(machine.update, 1000.0, Meter("rapl", lambda: reading), machine.clock)
    assert (found.joules, found.source) == (None, "model")


def write_zone(root: Path, name: str, joules: float) -> None:
    zone = root / name
    zone.mkdir(parents=True, exist_ok=True)
    (zone / "energy_uj").write_text(f"{int(joules * 1e6)}\n")
    (zone / "max_energy_range_uj").write_text("10000000\n")


def test_rapl_adds_up_packages_and_goes_past_the_end_of_the_counter(tmp_path: Path) -> None:
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        write_zone(tmp_path, name, 9.0)
    meter = find_meter("", tmp_path)
    assert meter is not None
    assert meter.source == "rapl"
    assert meter.read() == 0.0
    write_zone(tmp_path, "intel-rapl:0", 9.5)
    write_zone(tmp_path, "intel-rapl:1", 2.0)  # 1 J to the end, 2 J from the start
    write_zone(tmp_path, "intel-rapl:0:0", 5.0)  # a part of package 0
    assert meter.read() == pytest.approx(0.5 + 3.0)


def test_without_a_readable_counter_there_is_no_meter(tmp_path: Path) -> None:
    assert find_meter("", tmp_path) is None
    write_zone(tmp_path, "intel-rapl:0", 1.0)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert find_meter("", tmp_path) is None


def test_the_owners_meter_is_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_meter.py").write_text(
        "count = 0.0\n"
        "def read():\n    global count\n    count += 2.5\n    return count\n"
        "def broken():\n    raise RuntimeError('no answer')\n"
    )
    meter = find_meter("my_meter:read")
    assert meter is not None
    assert [meter.read(), meter.read()] == [2.5, 5.0]
    for name, words in (("nothing", "module:function"), ("my_meter:count", "not a function")):
        with pytest.raises(InputError, match=words):
            find_meter(name)
    broken = find_meter("my_meter:broken")
    assert broken is not None
    with pytest.raises(InputError, match="no answer"):
        broken.read()
    machine = Machine(1.0)
    assert measure(machine.update, 100.0, broken, machine.clock).source == "model"


def test_the_meter_of_the_docs_adds_up_the_watts_of_a_sensor(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "docs" / "examples" / "ina219.py"
    spec = importlib.util.spec_from_file_location("ina219", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with pytest.raises(RuntimeError, match="is its driver loaded"):
        example.find_sensor(tmp_path)
    for number, name in enumerate(("cpu_thermal", "ina219")):
        place = tmp_path / f"hwmon{number}"
        place.mkdir()
        (place / "name").write_text(f"{name}\n")
        (place / "power1_input").write_text("2000000\n")
    sensor, moments = example.find_sensor(tmp_path), iter([0.0, 10.0, 12.0])
    assert sensor.parent.name == "hwmon1"
    meter = example.Meter(sensor, lambda: next(moments))
    assert meter.read() == 20.0  # 2 W for 10 s
    sensor.write_text("4000000\n")
    assert meter.read() == 26.0  # and 3 W on average for 2 s


def test_a_report_has_measured_values_only_if_the_run_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps.py").write_text(
        "count = 0.0\ndef read():\n    global count\n    count += 1.0\n    return count\n"
    )
    config = small(training__model="logistic", data__samples_per_device=20)
    table = {"partition-id": 0, "num-partitions": 10, "joules": "steps:read"}
    plain = Node.of(config, table).report().devices
    assert {(d.update_seconds, d.update_joules, d.joules_source) for d in plain} == {
        (None, None, "model")
    }
    for device in Node.of(config, table, measured=True).report().devices:
        assert device.update_seconds is not None
        assert device.joules_source == "meter"
        assert device.update_joules == pytest.approx(1.0 / node_data.FEWEST_UPDATES)
