"""The page's plan is the plan of `camu plan`, and what it takes away gives the same plan again."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from camu.config import Config, load_config
from camu.errors import InputError
from camu.live.fleet_edits import fleet_csv
from camu.live.planner import Planner
from camu.live.state import PageState, read_state
from camu.live.take_away import CHARTS, take
from camu.schemes import make_scheme
from camu.schemes.registry import plan_for
from camu.world import build_world
from helpers.configs import small

FLEET = Path(__file__).parents[2] / "docs" / "examples" / "fleet.csv"


def page(*schemes: str, fleet: Any = None, **changes: Any) -> PageState:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    names = list(schemes) or ["camu"]
    return read_state({"changes": dotted, "schemes": names, "fleet": fleet})


def planned(config: Config) -> dict[str, Any]:
    world = build_world(config)
    return plan_for(make_scheme(config), world).to_dict(world)


def content(planner: Planner, state: PageState, what: str, scheme: str = "camu") -> bytes:
    return base64.b64decode(take(planner, state, what, scheme)["content"])


def test_numbers_are_those_of_camu_plan(tmp_path: Path) -> None:
    answer = Planner(small(), tmp_path).plan(page("camu", "camu-joint"))
    for name in ("camu", "camu-joint"):
        own = planned(small(scheme__name=name))
        shown = answer["schemes"][name]
        assert shown["totals"]["joules"] == own["round_joules"]
        assert shown["totals"]["seconds"] == own["round_seconds"]
        members = [[str(k) for k in unit["members"]] for unit in shown["units"]]
        assert members == [list(map(str, unit["members"])) for unit in own["units"]]
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
                "text": "data.labels_per_device = 11: the data set has only 10 labels",
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
    (tmp_path / "fleet.csv").write_text(fleet_csv(build_world(config).devices))
    again = planned(config.replace({"fleet.file": str(tmp_path / "fleet.csv")}))
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

    def test_a_drag_leaves_one_file_and_a_training_keeps_its_own(self, tmp_path: Path) -> None:
        planner = self.planner(tmp_path)
        states = [page(fleet={"moved": {"gate-1": [float(x), 0.0]}}) for x in range(5)]
        for state in states:
            assert planner.plan(state)["errors"] == []
        assert len(list((tmp_path / "fleets").iterdir())) == 1
        kept = Path(planner.config(states[1], keep=True).fleet.file or "")
        assert "gate-1" in kept.read_text()
        planner.plan(states[2])
        assert planner.config(states[1], keep=True).fleet.file == str(kept)
        assert len(list((tmp_path / "fleets").iterdir())) == 2

    def test_an_unknown_device_is_refused(self, tmp_path: Path) -> None:
        answer = self.planner(tmp_path).plan(page(fleet={"removed": ["../x"]}))
        assert "there is no device '../x'" in answer["errors"][0]["text"]

    def test_nothing_is_written_outside_the_run_directory(self, tmp_path: Path) -> None:
        edits = {"added": [{"id": "../../x", "like": "cart-1", "x": 3.0, "y": 4.0}]}
        folder = tmp_path / "live"
        assert self.planner(folder).plan(page(fleet=edits))["errors"] == []
        assert [path.name for path in tmp_path.iterdir()] == ["live"]


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
    with pytest.raises(InputError, match="no such file to take away"):
        take(Planner(small(), tmp_path), page(), what, "camu")
