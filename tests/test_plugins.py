"""The user's own code: found by name or path, its errors located, its source digested."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from camu.errors import CamuError, InputError, UserCodeError
from camu.plugins import describe_error, import_object, own_modules, source_digest, user_code
from camu.schemes.fedsgd import FedSgd


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
        import_object(path, "some.key")
    assert str(refused.value).startswith(f"some.key = {path}: ")
    return str(refused.value)


def test_a_class_in_the_current_directory(directory: Path) -> None:
    (directory / "mine_a.py").write_text("class Thing:\n    size = 3\n")
    path = list(sys.path)
    assert import_object("mine_a:Thing", "some.key").size == 3
    assert sys.path == path


def test_a_class_in_a_package_beside(directory: Path) -> None:
    (directory / "mine_b").mkdir()
    (directory / "mine_b" / "__init__.py").write_text("")
    (directory / "mine_b" / "part.py").write_text("class Thing:\n    pass\n")
    assert import_object("mine_b.part:Thing", "some.key").__module__ == "mine_b.part"


def test_an_installed_class() -> None:
    assert import_object("pathlib:Path", "some.key") is Path


@pytest.mark.parametrize("path", ["", "module", ":Thing", "module:"])
def test_a_path_that_is_none(path: str) -> None:
    assert "module:name or ./file.py:name" in refusal(path)


def test_a_module_that_is_not_there(directory: Path) -> None:
    message = refusal("mine_missing:Thing")
    assert "module mine_missing cannot be imported (ModuleNotFoundError" in message
    assert "current directory" in message
    assert str(directory) not in sys.path


def test_a_module_that_fails_on_its_own(directory: Path) -> None:
    (directory / "mine_c.py").write_text("1 / 0\n")
    assert "(mine_c.py, line 1: ZeroDivisionError: division by zero)" in refusal("mine_c:Thing")
    (directory / "mine_d.py").write_text("def broken(:\n")
    assert "(SyntaxError: " in refusal("mine_d:Thing")
    assert str(directory) not in sys.path


def test_a_module_that_exits(directory: Path) -> None:
    (directory / "mine_g.py").write_text("import sys\nsys.exit(3)\n")
    assert "(mine_g.py, line 2: SystemExit: 3)" in refusal("mine_g:Thing")


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "GeneratorExit"])
def test_a_module_that_raises_what_is_no_error(directory: Path, error: str) -> None:
    (directory / "mine_w.py").write_text(f"raise {error}\n")
    assert f"cannot be imported (mine_w.py, line 1: {error})" in refusal("mine_w:Thing")


def test_ctrl_c_during_an_import_passes(directory: Path) -> None:
    (directory / "mine_x.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    with pytest.raises(KeyboardInterrupt):
        import_object("mine_x:Thing", "some.key")


def test_a_name_that_is_not_there(directory: Path) -> None:
    (directory / "mine_e.py").write_text(
        "from pathlib import Path\nclass One: pass\ndef two(): pass\nthing = 3\n"
    )
    assert "has no Onee; did you mean `One`?; it has One, two" in refusal("mine_e:Onee")
    (directory / "mine_f.py").write_text("thing = 3\n")
    assert "it has no classes or functions" in refusal("mine_f:Thing")


def test_files_by_path(directory: Path) -> None:
    for folder, size in (("left", 1), ("right", 2)):
        (directory / folder).mkdir()
        (directory / folder / "mine_h.py").write_text("import mine_i\nThing = mine_i.Thing\n")
        (directory / folder / "mine_i.py").write_text(f"class Thing:\n    size = {size}\n")
    path = list(sys.path)
    assert import_object("./left/mine_h.py:Thing", "some.key").size == 1
    found = import_object(f"{directory}/left/mine_h.py:Thing", "some.key")
    assert found is import_object("left/mine_h.py:Thing", "some.key")
    assert sys.path == path
    # Files of one name in two directories are two modules.
    (directory / "right" / "mine_h.py").write_text("size = 2\n")
    assert import_object("./right/mine_h.py:size", "some.key") == 2
    assert refusal("./left/none.py:Thing").endswith("there is no file ./left/none.py")


def located(match: str) -> pytest.RaisesExc[UserCodeError]:
    return pytest.raises(UserCodeError, match=match)


BROKEN = """
import json

class Scheme:
    def plan(self, world):
        return self.share(world)

    def share(self, world):
        return 1 / world

    def read(self):
        return json.loads("{")

    def leave(self):
        raise SystemExit(4)

    def end(self):
        if self: raise GeneratorExit

    def refuse(self, error):
        raise error
"""


def test_errors_of_the_users_code_name_file_line_and_function(directory: Path) -> None:
    (directory / "mine_j.py").write_text(BROKEN)
    scheme = import_object("mine_j:Scheme", "scheme.name")()
    with pytest.raises(UserCodeError) as raised, user_code("scheme.name = mine_j:Scheme", scheme):
        scheme.plan(0)
    assert str(raised.value) == (
        "scheme.name = mine_j:Scheme: mine_j.py, line 9, in share: "
        "ZeroDivisionError: division by zero"
    )
    assert raised.value.exit_code == 1
    # An error inside a library is blamed on the line of the user's code that called it.
    with located(r"mine_j\.py, line 12, in read: JSONDecodeError"), user_code("x", scheme):
        scheme.read()
    with located(r"mine_j\.py, line 15, in leave: SystemExit: 4"), user_code("x", scheme):
        scheme.leave()
    with located(r"mine_j\.py, line 18, in end: GeneratorExit"), user_code("x", scheme):
        scheme.end()
    with located("takes 2 positional arguments but 3 were given"), user_code("x", scheme):
        scheme.plan(1, 2)


def test_errors_that_are_not_the_users_pass_unchanged(directory: Path) -> None:
    (directory / "mine_k.py").write_text(BROKEN)
    scheme = import_object("mine_k:Scheme", "scheme.name")()
    for error in (InputError("a"), CamuError("b"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, user_code("x", scheme):
            scheme.refuse(error)
        assert raised.value is error
    with pytest.raises(AttributeError), user_code("x", FedSgd()):
        FedSgd().plan(None)  # type: ignore[arg-type]


def test_digest_covers_the_module_and_its_neighbours(directory: Path) -> None:
    package = directory / "mine_l"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "scheme.py").write_text("from . import part\nclass Thing:\n    part = part\n")
    (package / "part.py").write_text("from mine_l.deep import value\n")
    (package / "deep.py").write_text("import json, mine_m\nvalue = 1\n")
    (package / "unused.py").write_text("")
    (directory / "mine_m.py").write_text("import mine_l.scheme\n")  # a circle ends
    first = source_digest("mine_l.scheme:Thing")
    assert len(first) == 64
    assert first == source_digest("mine_l.scheme:Thing")
    (package / "unused.py").write_text("other = 1\n")
    assert source_digest("mine_l.scheme:Thing") == first
    digests = {first}
    for file in ("scheme.py", "part.py", "deep.py", "__init__.py", "../mine_m.py"):
        with (package / file).open("a") as stream:
            stream.write("# changed\n")
        digests.add(source_digest("mine_l.scheme:Thing"))
    assert len(digests) == 6


def test_digest_does_not_depend_on_the_directory_or_the_way_to_name_it(directory: Path) -> None:
    for folder in ("left", "right"):
        (directory / folder).mkdir()
        (directory / folder / "mine_n.py").write_text("import mine_o\nThing = mine_o.Thing\n")
        (directory / folder / "mine_o.py").write_text("class Thing: pass\n")
    left, right = (source_digest(f"{d}/mine_n.py:Thing") for d in ("left", "right"))
    assert left == right
    (directory / "right" / "mine_o.py").write_text("class Thing: size = 1\n")
    assert source_digest("right/mine_n.py:Thing") != left


def test_digest_of_an_installed_module_leaves_other_packages_out() -> None:
    assert source_digest("json:loads") == source_digest("json:dumps")
    assert source_digest("math:sin") == source_digest("math:cos")  # no source file


def test_a_library_behind_a_link_is_not_blamed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment may be a link; the interpreter then names its files by the link."""
    (directory / "real").mkdir()
    (directory / "real" / "mine_library.py").write_text("def fail():\n    raise KeyError(3)\n")
    (directory / "link").symlink_to("real")
    (directory / "mine_p.py").write_text(
        "import mine_library\n\ndef call():\n    mine_library.fail()\n"
    )
    monkeypatch.setattr("camu.plugins._LIBRARIES", ((directory / "real").resolve(),))
    monkeypatch.syspath_prepend(str(directory / "link"))
    call = import_object("mine_p:call", "x")
    with located(r"^x: mine_p\.py, line 4, in call: KeyError: 3"), user_code("x", call):
        call()


CALLED = """
from torch import nn
import camu

def uplink(update, snr):
    return update

class Model(nn.Module):
    def forward(self):
        return 0

class Mine(camu.Scheme):
    def plan(self):
        return None
"""


def test_wrong_arguments_name_the_definition(directory: Path) -> None:
    (directory / "mine_q.py").write_text(CALLED)
    uplink, model, mine = (
        import_object(f"mine_q:{name}", "x") for name in ("uplink", "Model", "Mine")
    )
    for thing, arguments, error in (
        (uplink, "(update, snr, generator)", "uplink() takes 2 positional arguments but 3 were"),
        (model(), "(self, images)", "Model.forward() takes 1 positional argument but 2 were given"),
        (mine(), "", "Mine.plan() takes 1 positional argument but 2 were given"),
    ):  # fmt: skip
        described = describe_error(TypeError(error), thing, arguments)
        name = error.partition("(")[0].rpartition(".")[2]
        line = 1 + CALLED.splitlines().index(
            next(text for text in CALLED.splitlines() if f"def {name}(" in text)
        )
        assert described == (
            f"mine_q.py, line {line}, in {name}: TypeError: {error}; its arguments must be "
            f"{arguments or '(self, world)'}"
        )
    # An error of the same words about another function is not blamed on the user's.
    other = "loads() missing 1 required positional argument: 's'"
    assert describe_error(TypeError(other), uplink) == f"TypeError: {other}"


def test_a_file_without_a_name(directory: Path) -> None:
    (directory / "mine_r.py").write_text("class FedProx: pass\ndef two(): pass\ndef _no(): pass\n")
    assert refusal("./mine_r.py").endswith("add :NAME; the file has FedProx, two")
    assert refusal("./mine_none.py").endswith("there is no file ./mine_none.py")
    (directory / "mine_s.py").write_text("class (\n")
    assert "is not valid Python" in refusal("mine_s.py")


def test_own_modules_are_those_of_files_and_not_of_packages(directory: Path) -> None:
    (directory / "mine_whole.py").write_text("import json\nimport mine_part\nThing = mine_part\n")
    (directory / "mine_part.py").write_text("")
    (directory / "mine_other.py").write_text("")
    import_object("mine_other:__name__", "some.key")
    for path in ("mine_whole:Thing", "./mine_whole.py:Thing"):
        files = {Path(str(m.__file__)).name for m in own_modules(path, "some.key")}
        assert files == {"mine_whole.py", "mine_part.py"}
    assert own_modules("pathlib:Path", "some.key") == []
