"""The systemd units of the docs are valid, and their commands have the options that they use."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import typer

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.cli.deploy import app

UNITS = Path(__file__).parents[2] / "docs" / "examples" / "systemd"


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for unit in UNITS.glob("*.service"):
        # Its program is not installed here; any program that exists stands for it.
        text = unit.read_text().replace("/opt/camu/bin/camu", str(shutil.which("true")))
        (tmp_path / unit.name).write_text(text)
    names = sorted(str(path) for path in tmp_path.glob("*.service"))
    assert len(names) == 4
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda path: path.stem)
def test_commands_of_units_have_the_options_that_they_use(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    program, group, name, *arguments = shlex.split(line)
    assert (program, group) == ("/opt/camu/bin/camu", "deploy")
    command = typer.main.get_command(app)
    assert isinstance(command, click.Group)
    known = {option for each in command.commands[name].params for option in each.opts}
    used = {word for word in arguments if word.startswith("-")}
    assert used
    assert used <= known


def test_settings_of_the_node_are_those_that_its_unit_reads() -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", (UNITS / "camu-node.service").read_text(), re.M)
    settings = re.findall(r"^([A-Z]+)=", (UNITS / "node.env").read_text(), re.M)
    assert sorted(re.findall(r"\$\{?([A-Z]+)\b", line)) == sorted(settings)


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda path: path.stem)
def test_units_have_limits(unit: Path) -> None:
    limits = dict(re.findall(r"^(MemoryMax|CPUWeight|TasksMax)=(.+)$", unit.read_text(), re.M))
    assert sorted(limits) == ["CPUWeight", "MemoryMax", "TasksMax"]


def test_other_options_of_a_node_that_its_settings_name_are_options() -> None:
    text = (UNITS / "node.env").read_text()
    (words,) = re.findall(r"^# Further options.*such as (.*)$", text, re.M)
    command = typer.main.get_command(app)
    assert isinstance(command, click.Group)
    known = {option for each in command.commands["node"].params for option in each.opts}
    assert {word for word in words.split() if word.startswith("--")} <= known
