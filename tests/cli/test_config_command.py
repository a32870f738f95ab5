"""`camu config` and the command line's manners."""

from collections.abc import Callable
from typing import Any


def test_show_prints_the_resolved_toml(camu: Callable[..., Any]) -> None:
    done = camu("config", "show", "--preset", "paper", "--set", "radio.noise_dbm=-90")
    assert done.code == 0
    assert "noise_dbm = -90.0" in done.out
    assert "exponent = 3.76" in done.out


def test_wrong_key_exits_2_and_suggests(camu: Callable[..., Any]) -> None:
    done = camu("config", "show", "--preset", "paper", "--set", "radio.nois_dbm=-90")
    assert done.code == 2
    assert done.out == ""
    assert "noise_dbm" in done.err
    assert "Traceback" not in done.err


def test_keys_lists_a_section(camu: Callable[..., Any]) -> None:
    done = camu("config", "keys", "radio")
    assert done.code == 0
    assert "radio.noise_dbm" in done.out
    assert "run.seed" not in done.out
    assert camu("config", "keys", "nowhere").code == 2


def test_unknown_command_and_option_exit_2(camu: Callable[..., Any]) -> None:
    assert camu("nonsense").code == 2
    assert camu("config", "show", "--nonsense").code == 2


def test_help_and_version(camu: Callable[..., Any]) -> None:
    assert camu("--help").code == 0
    assert camu("--version").out.startswith("camu ")
