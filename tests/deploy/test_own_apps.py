"""Servers and nodes run camu's own apps from their own installation, whatever bundle arrives."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tomllib
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.deploy import flower
from camu.deploy.array_records import Refusal
from camu.deploy.deployment import LARGEST_BUNDLE_BYTES, Deployment, make_bundle, read_bundle
from camu.deploy.flower import (
    FLOWER,
    Executor,
    check_bundles_refused,
    check_version,
    replace,
)
from camu.deploy.host.guard import Guard
from camu.deploy.host.node import node_command
from camu.deploy.host.self_test import check_guarded, check_nodes_apart
from camu.deploy.host.superlink import superlink_command, use_own_server_app
from camu.deploy.server import app as server_app
from camu.errors import CamuError, InputError
from helpers.configs import small
from helpers.foreign_app import disguised_bundle, foreign_bundle

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")


def zipped(**files: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "."), data)
    return content.getvalue()


def test_a_bundle_of_camu_carries_its_deployment() -> None:
    deployment = Deployment(small(), "/somewhere", nodes=2)
    assert Deployment.from_run_config(read_bundle(make_bundle(deployment))) == deployment


BAD_BUNDLES = {
    "code": (foreign_bundle, "carries 'camu/__init__.py'"),
    "camu's names": (disguised_bundle, "carries 'camu/__init__.py'"),
    "other apps": (
        lambda _: zipped(
            pyproject__toml=b"[tool.flwr.app]\nconfig={}\n[tool.flwr.app.components]\n"
            b"serverapp='os:abort'\nclientapp='os:abort'"
        ),
        r"other apps than camu's own \(os:abort",
    ),
    "no archive": (lambda _: b"nonsense", "not one of camu"),
    "no app": (lambda _: zipped(pyproject__toml=b"a = 1"), "not one of camu"),
    "no text": (lambda _: zipped(pyproject__toml=b"\xff"), "not one of camu"),
    "a bomb": (lambda _: zipped(pyproject__toml=b" " * (LARGEST_BUNDLE_BYTES + 1)), "too large"),
}


@pytest.mark.parametrize("name", BAD_BUNDLES)
def test_any_other_bundle_is_refused(name: str, tmp_path: Path) -> None:
    make, words = BAD_BUNDLES[name]
    with pytest.raises(Refusal, match=words):
        read_bundle(make(tmp_path / "marker"))
    assert not (tmp_path / "marker").exists()


def flowers(name: str) -> types.SimpleNamespace:
    """The names of a module of Flower, in a copy that a test may change."""
    import importlib

    return types.SimpleNamespace(**vars(importlib.import_module(name)))


def test_a_server_never_loads_a_foreign_bundle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = flowers("flwr.superlink.runtime.run_serverapp")
    nodes, grid = ["node"], types.SimpleNamespace()
    use_own_server_app(module, lambda: nodes)
    with pytest.raises(Refusal):
        module.install_from_fab(disguised_bundle(tmp_path / "marker"), skip_prompt=True)
    assert "a run is refused: its bundle carries" in caplog.text
    deployment = Deployment(small(), str(tmp_path / "run"), nodes=2)
    module.install_from_fab(make_bundle(deployment), skip_prompt=True)
    table = module.get_fused_config_from_dir(tmp_path, {})
    assert Deployment.from_run_config(table) == deployment
    served = []
    monkeypatch.setattr(server_app, "serve", lambda grid, wanted, run: served.append(wanted))
    context = types.SimpleNamespace(run_config=table, run_id=1)
    module.run_(grid=grid, server_app_dir="/", server_app_attr="foreign:server", context=context)
    assert served == [deployment]
    assert grid.registered_nodes() == nodes  # also those that are not online
    assert not (tmp_path / "marker").exists()


def test_a_name_that_flower_has_renamed_ends_the_program() -> None:
    def run_serverapp() -> None:
        install_app_bundle()  # type: ignore[name-defined] # noqa: F821

    renamed = types.SimpleNamespace(
        run_serverapp=run_serverapp, run_=print, install_app_bundle=print
    )
    with pytest.raises(CamuError, match=r"does not use install_from_fab.*flwr==1.41.0"):
        use_own_server_app(renamed, list)
    renamed.install_from_fab = print  # still there, and nobody calls it
    with pytest.raises(CamuError, match="does not use install_from_fab"):
        use_own_server_app(renamed, list)
    with pytest.raises(CamuError, match="does not use finish_task"):
        replace(types.SimpleNamespace(), "finish_task", print)


def test_the_self_tests_end_a_program_that_would_be_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CamuError, match="a foreign bundle is not refused"):
        check_bundles_refused(lambda bundle, **_: None)

    async def open_to_all(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise KeyError("state")

    for app in (open_to_all, broken):
        with pytest.raises(CamuError, match="the control interface is open"):
            check_guarded(app)
        check_guarded(Guard(app, "a" * 64, None))
        check_nodes_apart(app)
    assert caplog.text == ""


def test_only_the_version_of_flower_that_was_pinned_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert f"flwr=={FLOWER}" in project["project"]["optional-dependencies"]["flower"]
    check_version()
    monkeypatch.setattr(flower, "version", lambda name: "1.41.1")
    with pytest.raises(InputError, match=r"Flower 1\.41\.1 is installed; install .*flwr==1.41.0"):
        check_version()


def test_a_superlink_and_a_node_end_with_a_sentence_where_flower_has_changed(
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as m\nreal = m.version\n"
        "m.version = lambda name: '1.41.9' if name == 'flwr' else real(name)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    for arguments in (
        superlink_command("127.0.0.1", 1, None, token=tmp_path / "token")[1:],
        node_command("127.0.0.1:1", None, None, {})[1:],
    ):
        ended = subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == 2
        assert "error: Flower 1.41.9 is installed" in ended.stderr


def test_an_executor_carries_out_tasks_of_its_type_only() -> None:
    started: list[Any] = []
    executor = Executor("flwr-clientapp", started.append)
    assert executor.get_eligible_capacity({"flwr-clientapp", "flwr-agentapp"})[0] == {
        "flwr-clientapp"
    }
    other = types.SimpleNamespace(task_type="flwr-agentapp")
    assert "no tasks of type flwr-agentapp" in executor.launch(other).message
    assert started == []
    own = types.SimpleNamespace(task_type="flwr-clientapp")
    assert executor.launch(own).status == "accepted"
    assert started == [own]


def test_logs_that_are_files_have_no_colour_codes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from flwr.supercore.logger import FLOWER_LOGGER, console_handler

    monkeypatch.setattr(console_handler, "colored", True)
    monkeypatch.setattr(console_handler, "stream", sys.stderr)
    FLOWER_LOGGER.warning("with colour")
    flower.plain_logs()
    FLOWER_LOGGER.warning("plain")
    before, after = capsys.readouterr().err.splitlines()
    assert ("\x1b[" in before, "\x1b[" in after) == (True, False)
