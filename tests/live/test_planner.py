"""The page's plan is the plan of `camu plan`, and what it takes away gives the same plan again."""

from __future__ import annotations

import base64
import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.config import Config, load_config
from camu.errors import InputError
from camu.live.downloads import CHARTS, download, fleet_csv, training_config
from camu.live.fleet_facts import beside, idle_keys
from camu.live.planner import Planner
from camu.live.settings import PageState, describe_controls, read_state
from camu.planning.central import send_data
from camu.report.scenes import plan_sentences
from camu.schemes import make_scheme, plans
from camu.simulation.dry_run import round_cost
from camu.world import build_world
from helpers.configs import small

FLEET = Path(__file__).parents[2] / "docs" / "examples" / "fleet.csv"


def page(*schemes: str, fleet: Any = None, **changes: Any) -> PageState:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    names = list(schemes) or ["camu"]
    return read_state({"changes": dotted, "schemes": names, "fleet": fleet})


def planned(config: Config) -> dict[str, Any]:
    world = build_world(config)
    return plans.plan(make_scheme(config), world).to_dict(world)


def content(planner: Planner, state: PageState, what: str, scheme: str = "camu") -> bytes:
    return base64.b64decode(download(planner, state, what, scheme)["content"])


def test_numbers_are_those_of_camu_plan(tmp_path: Path) -> None:
    names = ("camu", "camu-joint", "near-iid-bandit", "fedpaq")
    answer = Planner(small(), tmp_path).plan(page(*names))
    for name in names:
        config = small(scheme__name=name)
        own, world, scheme = planned(config), build_world(config), make_scheme(config)
        cost = round_cost(world, scheme, plans.plan(scheme, world))  # as the command prints it
        shown = answer["schemes"][name]
        assert shown["totals"]["joules"] == pytest.approx(cost.joules)
        assert shown["totals"]["seconds"] == pytest.approx(cost.seconds)
        sent = send_data(world).bill
        assert shown["totals"]["data_megabytes"] == pytest.approx(sent.megabytes)
        assert shown["totals"]["data_seconds"] == pytest.approx(sent.seconds)
        members = [[str(k) for k in unit["members"]] for unit in shown["units"]]
        assert members == [list(map(str, unit["members"])) for unit in own["units"]]
        repeating = sum(unit["local_updates"] > 1 for unit in own["units"])
        assert shown["totals"]["repeating"] == repeating
        assert f"{repeating or 'no'} cluster" in plan_sentences(own, 0, True, None, None)
    certificate = planned(small(scheme__name="camu-joint"))["allocation"]
    totals = answer["schemes"]["camu-joint"]["totals"]
    assert [totals[key] for key in ("objective", "gap", "shadow_price")] == [
        certificate[key] for key in ("objective", "gap", "shadow_price")
    ]


def test_an_impossible_setting_is_a_sentence_with_its_key(tmp_path: Path) -> None:
    answer = Planner(small(), tmp_path).plan(page(data__labels_per_device=11))
    assert answer == {
        "errors": [
            {
                "key": "data.labels_per_device",
                "text": "data.labels_per_device = 11: the data set has only 10 labels; "
                "lower it, or use another data.partition",
            }
        ]
    }


def test_a_data_set_that_is_not_here_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAMU_DATA", str(tmp_path / "empty"))
    answer = Planner(small(), tmp_path).plan(page(data__dataset="fashion-mnist"))
    assert "camu data fetch fashion-mnist" in answer["errors"][0]["text"]
    assert not (tmp_path / "empty").exists()


def test_the_configuration_taken_away_gives_the_same_plan(tmp_path: Path) -> None:
    planner = Planner(small(), tmp_path)
    places = build_world(small()).devices.positions.tolist()
    places[2] = [13.3, 2.25, 0.0]
    state = page("camu-joint", fleet__positions=places, allocation__energy_joules=0.3)
    toml = content(planner, state, "config.toml", "camu-joint").decode()
    plan = json.loads(content(planner, state, "plan.json", "camu-joint"))
    again = planned(Config.from_toml(toml))
    assert again == plan
    assert again["devices"][2]["position"] == [13.3, 2.25, 0.0]


def test_devices_written_as_a_fleet_file_are_the_same_devices(tmp_path: Path) -> None:
    config = small()
    world = build_world(config).with_devices(harvest_watts=np.full(20, 0.25))
    (tmp_path / "fleet.csv").write_text(fleet_csv(world.devices))
    again = planned(config.replace({"fleet.file": str(tmp_path / "fleet.csv")}))
    files = build_world(config.replace({"fleet.file": str(tmp_path / "fleet.csv")}))
    assert files.devices.harvest_watts.tolist() == [0.25] * 20
    plan = planned(config)
    assert [unit["members"] for unit in again["units"]] == [
        [str(k) for k in unit["members"]] for unit in plan["units"]
    ]
    assert again["round_joules"] == plan["round_joules"]


class TestFleetFile:
    """Edits of a fleet file."""

    def planner(self, folder: Path) -> Planner:
        return Planner(load_config(preset="paper").replace({"fleet.file": str(FLEET)}), folder)

    def test_devices_move_come_and_go(self, tmp_path: Path) -> None:
        edits = {
            "moved": {"gate-1": [1.5, 2.5]},
            "removed": ["desk-1"],
            "added": [{"id": "new-1", "like": "cart-1", "x": 3.0, "y": 4.0}],
        }
        answer = self.planner(tmp_path).plan(page(fleet=edits))
        devices = {device["id"]: device for device in answer["world"]["devices"]}
        assert devices["gate-1"]["at"][:2] == [1.5, 2.5]
        assert "desk-1" not in devices
        assert devices["new-1"]["at"][:2] == [3.0, 4.0]
        assert devices["new-1"]["samples"] == devices["cart-1"]["samples"]

    def test_the_edited_fleet_is_taken_away_with_its_configuration(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planner, state = self.planner(tmp_path), page(fleet={"moved": {"gate-1": [1.5, 2.5]}})
        for name in ("config.toml", "fleet.csv"):
            (tmp_path / name).write_bytes(content(planner, state, name))
        monkeypatch.chdir(tmp_path)
        assert planned(load_config(tmp_path / "config.toml")) == json.loads(
            content(planner, state, "plan.json")
        )

    def test_a_drag_writes_nothing_and_a_training_keeps_its_fleet(self, tmp_path: Path) -> None:
        planner = self.planner(tmp_path)
        states = [page(fleet={"moved": {"gate-1": [float(x), 0.0]}}) for x in range(5)]
        for state in states:
            assert planner.plan(state)["errors"] == []
        assert list(tmp_path.iterdir()) == []
        kept = training_config(planner, states[1])
        assert build_world(kept).devices.positions[0, :2].tolist() == [1.0, 0.0]
        planner.plan(states[2])
        assert training_config(planner, states[1]) == kept
        assert len(list((tmp_path / "fleets").iterdir())) == 1

    @pytest.mark.parametrize("like", ["new-1", "new-2"])
    def test_a_new_device_is_like_one_of_the_file(self, tmp_path: Path, like: str) -> None:
        names = ("new-1", "new-2")
        added = [{"id": name, "like": like, "x": 3.0, "y": 4.0} for name in names]
        answer = self.planner(tmp_path).plan(page(fleet={"added": added}))
        assert f"there is no device '{like}'" in answer["errors"][0]["text"]

    def test_an_unknown_device_is_refused(self, tmp_path: Path) -> None:
        answer = self.planner(tmp_path).plan(page(fleet={"removed": ["../x"]}))
        assert "there is no device '../x'" in answer["errors"][0]["text"]

    def test_nothing_is_written_outside_the_run_directory(self, tmp_path: Path) -> None:
        edits = {"added": [{"id": "../../x", "like": "cart-1", "x": 3.0, "y": 4.0}]}
        folder = tmp_path / "live"
        assert self.planner(folder).plan(page(fleet=edits))["errors"] == []
        training_config(self.planner(folder), page(fleet=edits))
        assert [path.name for path in tmp_path.iterdir()] == ["live"]
        assert [path.parent.name for path in folder.rglob("*.csv")] == ["fleets"]


GATEWAYS = """id,lat,lon,rssi_dbm,harvest_watts,samples
a,52.5,13.4,-80,0.5,30
b,52.501,13.402,-82,,20
c,52.502,13.404,,0.25,25
d,52.503,13.401,-79,,40
"""
STATIONS = "id,latitude,longitude\nnorth,52.51,13.4\nsouth,52.49,13.41\n"


class TestGateways:
    """A fleet in latitude and longitude, with measured uplinks and base stations from a file."""

    def planner(self, folder: Path) -> Planner:
        (folder / "in.csv").write_text(GATEWAYS)
        (folder / "masts.csv").write_text(STATIONS)
        files = {
            "fleet.file": str(folder / "in.csv"),
            "fleet.base_station_file": str(folder / "masts.csv"),
        }
        return Planner(load_config(preset="paper").replace(files), folder)

    def test_devices_are_moved_on_the_map_and_the_others_stay(self, tmp_path: Path) -> None:
        planner = self.planner(tmp_path)
        before = planner.plan(page())["world"]
        moved = planner.plan(page(fleet={"moved": {"a": [500.0, -100.0]}, "removed": ["d"]}))
        assert moved["errors"] == []
        devices = {device["id"]: device for device in moved["world"]["devices"]}
        assert devices["a"]["at"][:2] == [500.0, -100.0]
        for device in before["devices"][1:3]:
            assert devices[device["id"]] == device
        assert moved["world"]["stations"] == before["stations"]
        # A setting still has an effect.
        quiet = planner.plan(
            page(fleet={"moved": {"a": [500.0, -100.0]}}, fleet__max_power_watts=3)
        )
        assert quiet["errors"] == []

    def test_a_moved_device_loses_its_measured_uplink(self, tmp_path: Path) -> None:
        planner = self.planner(tmp_path)
        before = planner.plan(page())["world"]["devices"]
        state = page(fleet={"moved": {"a": before[2]["at"][:2]}})
        moved = planner.plan(state)["world"]["devices"]
        assert planner.table(state).rows[0]["rssi_dbm"] is None
        # At the place of c, which has no measurement, it is heard as c is.
        assert moved[0]["snr_db"] == pytest.approx(before[2]["snr_db"], abs=0.1)
        assert moved[0]["snr_db"] != before[0]["snr_db"]

    def test_all_base_stations_are_drawn(self, tmp_path: Path) -> None:
        world = self.planner(tmp_path).plan(page())["world"]
        assert len(world["stations"]) == 2
        assert not world["station_moves"]
        assert {device["station"] for device in world["devices"]} <= {0, 1}

    @pytest.mark.parametrize("edits", [None, {"moved": {"a": [500.0, -100.0]}}])
    def test_the_downloaded_files_give_the_same_plan(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edits: Any
    ) -> None:
        planner, state = self.planner(tmp_path), page(fleet=edits)
        folder = tmp_path / "unpacked"
        with zipfile.ZipFile(io.BytesIO(content(planner, state, "all.zip"))) as archive:
            archive.extractall(folder)
        monkeypatch.chdir(folder)
        plan = json.loads((folder / "plan.json").read_text())
        assert planned(load_config(folder / "config.toml")) == plan
        header = (folder / "fleet.csv").read_text().splitlines()[0].split(",")
        assert {"rssi_dbm", "harvest_watts"} <= set(header)
        assert plan == planned(training_config(planner, state))

    def test_base_stations_keep_their_names(self, tmp_path: Path) -> None:
        planner = self.planner(tmp_path)
        state = page(fleet={"moved": {"a": [500.0, -100.0]}})
        assert planner.plan(state)["world"]["station_names"] == ("north", "south")
        lines = content(planner, state, "stations.csv").decode().splitlines()
        assert [line.split(",")[0] for line in lines] == ["id", "north", "south"]

    def test_a_moved_device_says_what_it_has_lost(self, tmp_path: Path) -> None:
        planner = self.planner(tmp_path)
        added = [{"id": "new-1", "like": "b", "x": 3.0, "y": 4.0}]
        moved = {"a": [500.0, -100.0], "c": [0.0, 0.0]}  # nothing was measured of c
        answer = planner.plan(page(fleet={"moved": moved, "added": added}))
        assert answer["world"]["lost"] == {"a": "rssi_dbm", "new-1": "rssi_dbm"}
        assert answer["warnings"][0].startswith("moved or new: a, new-1; what was measured")
        assert planner.plan(page())["world"]["lost"] == {}


def first_gateways(folder: Path) -> dict[str, Any]:
    """The first 30 gateways of docs/examples, in degrees, with their base stations."""
    lines = (FLEET.parent / "gateways.csv").read_text().splitlines()[:31]
    (folder / "gateways.csv").write_text("\n".join(lines) + "\n")
    files = {"fleet.file": folder / "gateways.csv", "fleet.base_station_file": "stations.csv"}
    files["fleet.base_station_file"] = FLEET.parent / "stations.csv"
    return {key: str(path) for key, path in files.items()}


class Edits:
    """Random edits of a fleet's file, as the page makes them."""

    def __init__(self, planner: Planner, dice: random.Random) -> None:
        self.dice = dice
        self.names = [str(row["id"]) for row in planner.table(page()).rows]
        self.fleet: dict[str, Any] = {"moved": {}, "removed": [], "added": []}

    def one_more(self) -> None:
        x, y = (round(self.dice.uniform(-60, 60), 2) for _ in range(2))
        there = [name for name in self.names if name not in self.fleet["removed"]]
        kind = self.dice.choice(["move", "move", "add", "remove"] if len(there) > 4 else ["add"])
        if kind == "move":
            self.fleet["moved"][self.dice.choice(there)] = (x, y)
        elif kind == "add":
            name = f"new-{len(self.fleet['added']) + 1}"
            like = self.dice.choice(self.names)
            self.fleet["added"].append({"id": name, "like": like, "x": x, "y": y})
        else:
            gone = self.dice.choice(there)
            self.fleet["removed"].append(gone)
            self.fleet["moved"].pop(gone, None)


@pytest.mark.slow
@pytest.mark.parametrize("places", ["metres", "degrees"])
def test_what_is_taken_away_plans_to_the_same_numbers_after_a_hundred_edits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: str
) -> None:
    files = {"fleet.file": str(FLEET)} if places == "metres" else first_gateways(tmp_path)
    planner = Planner(load_config(preset="demo").replace(files), tmp_path / "live")
    edits = Edits(planner, random.Random(5))
    seen = set()
    for number in range(100):
        edits.one_more()
        state = page(fleet=edits.fleet, run__seed=number % 3)
        folder = tmp_path / str(number)
        with zipfile.ZipFile(io.BytesIO(content(planner, state, "all.zip"))) as archive:
            archive.extractall(folder)
        monkeypatch.chdir(folder)
        config = load_config("config.toml")
        assert planned(config) == json.loads(Path("plan.json").read_text())
        world, scheme = build_world(config), make_scheme(config)
        cost = round_cost(world, scheme, plans.plan(scheme, world))
        shown = planner.plan(state)["schemes"]["camu"]["totals"]
        assert (shown["joules"], shown["seconds"]) == (cost.joules, cost.seconds)
        seen.add(cost.joules)
    assert len(seen) > 80  # the edits changed something


def test_controls_without_effect_on_a_fleet_are_hidden(tmp_path: Path) -> None:
    lines = ["id,x,y,link,board,power_watts,battery_joules,label_0,label_1"]
    lines += [f"d{k},{k},{k % 3},lora-sf7,pi-4,0.02,{5000 + k},{20 + k},{30 - k}" for k in range(8)]
    (tmp_path / "f.csv").write_text("\n".join(lines) + "\n")
    base = load_config(preset="demo").replace({"fleet.file": str(tmp_path / "f.csv")})
    idle = idle_keys(base)
    shown = {control["key"] for control in describe_controls(base, idle)}
    assert not shown & idle
    planner = Planner(base, tmp_path)
    others = {
        "data.partition": "dirichlet", "data.noniid_devices": 1, "data.labels_per_device": 1,
        "data.alpha": 3.0, "data.shards_per_device": 1, "data.samples_per_device": 7,
        "data.size_exponent": 1.0, "fleet.power_watts": 0.01, "fleet.battery_joules": 9.0,
        "fleet.cpu_hz": [1e8, 1e8], "fleet.capacitance": 1e-27, "fleet.idle_watts": 3.0,
        "fleet.static_watts": 3.0, "fleet.cycles_per_sample": 9.0, "fleet.flops_per_cycle": 9.0,
        "radio.link": "wifi-n",
    }  # fmt: skip
    assert set(others) == idle
    usual = planner.plan(page("camu", "fedavg"))
    assert usual["errors"] == []
    for key, value in others.items():
        other = planner.plan(page("camu", "fedavg", **{key: value}))
        assert other["schemes"] == usual["schemes"], key
    assert idle_keys(load_config(preset="demo")) == frozenset()
    assert beside(base) == "fedsgd"
    assert beside(base.replace({"fleet.file": str(FLEET)})) == "camu-joint"


def test_batteries_last_as_their_power_says(tmp_path: Path) -> None:
    lines = ["id,x,y,board,battery_joules,samples"]
    lines += ["a,0,0,pi-4,86400,50", "b,3,0,pi-zero-2w,86400,50", "c,0,3,pi-4,mains,50"]
    (tmp_path / "f.csv").write_text("\n".join(lines) + "\n")
    base = load_config(preset="demo").replace({"fleet.file": str(tmp_path / "f.csv")})
    days = Planner(base, tmp_path).plan(page("fedavg"))["schemes"]["fedavg"]["days"]
    # Idle draw of the boards: 2.7 W and 0.6 W (docs/fleet.md).
    assert days["without"] == [pytest.approx(1 / 2.7, 1e-3), pytest.approx(1 / 0.6, 1e-3), None]
    world, config = build_world(base), base.replace({"scheme.name": "fedavg"})
    cost = round_cost(world, make_scheme(config), plans.plan(make_scheme(config), world))
    watts = [86400 / (86400 * value) for value in days["with"][:2]]
    assert sum(watts) < cost.joules / cost.seconds  # the third device is on mains power
    assert watts[0] > 2.7
    assert watts[1] > 0.6
    assert days["first_with"] == min(days["with"][:2])
    assert Planner(small(), tmp_path).plan(page())["schemes"]["camu"]["days"] is None


@pytest.mark.parametrize("chart", CHARTS)
def test_every_chart_can_be_taken_away(tmp_path: Path, chart: str) -> None:
    svg = content(Planner(small(), tmp_path), page(), f"{chart}.svg").decode()
    assert svg.startswith("<svg")


def test_tables_have_a_line_per_unit_and_device(tmp_path: Path) -> None:
    planner = Planner(small(), tmp_path)
    plan = json.loads(content(planner, page(), "plan.json"))
    assert len(content(planner, page(), "units.csv").splitlines()) == 1 + len(plan["units"])
    assert len(content(planner, page(), "devices.csv").splitlines()) == 1 + 20


@pytest.mark.parametrize("what", ["../../etc/passwd", "/etc/passwd", "x.svg", "command.svg", ""])
def test_no_other_file_can_be_taken_away(tmp_path: Path, what: str) -> None:
    with pytest.raises(InputError, match="no such file to download"):
        download(Planner(small(), tmp_path), page(), what, "camu")
