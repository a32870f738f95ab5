"""A user's own class by import path: found in the current directory, errors that tell the way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from camu.errors import InputError
from camu.own_code import import_class


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("mine_"):
            del sys.modules[name]


def refusal(path: str) -> str:
    with pytest.raises(InputError) as refused:
        import_class(path, "some.key")
    assert str(refused.value).startswith(f"some.key = {path}: ")
    return str(refused.value)


def test_a_class_in_the_current_directory(directory: Path) -> None:
    (directory / "mine_a.py").write_text("class Thing:\n    size = 3\n")
    path = list(sys.path)
    assert import_class("mine_a:Thing", "some.key").size == 3  # type: ignore[attr-defined]
    assert sys.path == path


def test_a_class_in_a_package_beside(directory: Path) -> None:
    (directory / "mine_b").mkdir()
    (directory / "mine_b" / "__init__.py").write_text("")
    (directory / "mine_b" / "part.py").write_text("class Thing:\n    pass\n")
    assert import_class("mine_b.part:Thing", "some.key").__module__ == "mine_b.part"


def test_an_installed_class() -> None:
    assert import_class("pathlib:Path", "some.key") is Path


@pytest.mark.parametrize("path", ["", "module", ":Thing", "module:"])
def test_a_path_that_is_none(path: str) -> None:
    assert "write your own as module:Class" in refusal(path)


def test_a_module_that_is_not_there(directory: Path) -> None:
    message = refusal("mine_missing:Thing")
    assert "module mine_missing cannot be imported (ModuleNotFoundError" in message
    assert "current directory" in message
    assert str(directory) not in sys.path


def test_a_module_that_fails_on_its_own(directory: Path) -> None:
    (directory / "mine_c.py").write_text("1 / 0\n")
    assert "(ZeroDivisionError: division by zero)" in refusal("mine_c:Thing")
    (directory / "mine_d.py").write_text("def broken(:\n")
    assert "(SyntaxError: " in refusal("mine_d:Thing")
    assert str(directory) not in sys.path


def test_a_class_that_is_not_there(directory: Path) -> None:
    (directory / "mine_e.py").write_text("class One: pass\nclass Two: pass\nthing = 3\n")
    assert "no class Three; its classes are One, Two" in refusal("mine_e:Three")
    assert "no class thing" in refusal("mine_e:thing")
    (directory / "mine_f.py").write_text("thing = 3\n")
    assert "its classes are none" in refusal("mine_f:Thing")
