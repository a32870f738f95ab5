"""`camu config`, the order of settings, help and misspelt commands."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from camu.cli import app
from camu.config import Config


def test_show_prints_the_resolved_toml(camu: Callable[..., Any]) -> None:
    done = camu("config", "show", "--preset", "paper", "--set", "radio.noise_dbm=-90")
    assert done.code == 0
    assert "noise_dbm = -90.0" in done.out
    assert "exponent = 3.76" in done.out


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_set_beats_the_file_and_the_file_beats_the_preset(
    camu: Callable[..., Any], tmp_path: Path, order: tuple[int, ...]
) -> None:
    """In whatever order the options are written."""
    file = tmp_path / "mine.toml"
    file.write_text("[run]\nrounds = 7\nseed = 5\n")
    options = [("--preset", "demo"), ("-c", file), ("--set", "run.seed=6")]
    done = camu("config", "show", *itertools.chain(*(options[index] for index in order)))
    assert done.code == 0, done.err
    shown = tomllib.loads(done.out)
    assert shown["data"]["dataset"] == "digits"  # only the preset sets it
    assert shown["run"]["rounds"] == 7  # the preset has 40
    assert shown["run"]["seed"] == 6


def test_wrong_key_exits_2_and_suggests(camu: Callable[..., Any]) -> None:
    done = camu("config", "show", "--preset", "paper", "--set", "radio.nois_dbm=-90")
    assert done.code == 2
    assert done.out == ""
    assert "noise_dbm" in done.err
    assert "Traceback" not in done.err


def test_show_refuses_a_scheme_that_does_not_exist(camu: Callable[..., Any]) -> None:
    done = camu("config", "show", "--set", "scheme.name=camuu")
    assert done.code == 2
    assert "scheme.name = camuu: no such scheme; did you mean `camu`?" in done.err
    assert camu("config", "show", "--set", "scheme.name=mine:Own").code == 0


def test_json_says_what_the_tables_say(camu: Callable[..., Any]) -> None:
    done = camu("config", "show", "--preset", "paper", "--set", "run.rounds=7", "--json")
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    assert list(shown) == list(Config.model_fields)
    assert shown["run"]["rounds"] == 7
    assert json.loads(camu("config", "show", "--preset", "literal", "--json").out)
    keys = json.loads(camu("config", "keys", "run", "--json").out)
    assert [key["name"] for key in keys] == list(shown["run"])
    assert set(keys[0]) == {"section", "name", "default", "accepts", "meaning"}
    digits = json.loads(camu("data", "list", "--json").out)[3]
    assert (digits["name"], digits["state"], digits["classes"]) == ("digits", "embedded", 10)


def test_keys_lists_a_section(camu: Callable[..., Any]) -> None:
    done = camu("config", "keys", "radio")
    assert done.code == 0
    assert "radio.noise_dbm" in done.out
    assert "run.seed" not in done.out
    assert camu("config", "keys", "nowhere").code == 2


def test_names_of_keys_are_never_broken(
    camu: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = camu("config", "keys").out
    for section, values in Config().model_dump().items():
        for key in values:
            assert f" {section}.{key} " in shown


def test_unknown_command_and_option_exit_2(camu: Callable[..., Any]) -> None:
    assert camu("nonsense").code == 2
    assert camu("config", "show", "--nonsense").code == 2


def test_help_and_version(camu: Callable[..., Any]) -> None:
    assert camu("--help").code == 0
    assert camu("--version").out.startswith("camu ")


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, (*path, name))


@pytest.mark.parametrize(("path", "command"), list(_commands(typer.main.get_command(app))))
def test_help_shows_text_in_square_brackets(
    camu: Callable[..., Any], path: tuple[str, ...], command: Any
) -> None:
    shown = " ".join(camu(*path, "--help").out.replace("│", " ").split())
    texts = [command.help or "", *(getattr(each, "help", "") or "" for each in command.params)]
    for text in texts:
        for part in re.findall(r"\[[^\]]+\]", text):
            assert " ".join(part.replace("`", "").split()) in shown
    for option in command.params:
        default = getattr(option, "show_default", False) and option.default
        if isinstance(default, int | float | str) and not isinstance(default, bool):
            assert f"[default: {default}" in shown, option.name


def test_a_misspelt_command_is_suggested_once(camu: Callable[..., Any]) -> None:
    done = camu("plann")
    assert done.code == 2
    assert done.err.count("Did you mean") == 1


def test_shell_completion_is_offered(camu: Callable[..., Any]) -> None:
    assert "--install-completion" in camu("--help").out
