"""Servers and nodes run camu's own apps from their own installation, whatever bundle arrives."""

from __future__ import annotations

import io
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.deploy import node_app
from camu.deploy.bundles import LARGEST_BYTES, read_bundle
from camu.deploy.deployment import Deployment, make_bundle
from camu.deploy.flower_tasks import Executor, use_own_node_app, use_own_server_app
from camu.deploy.reports import Refusal
from camu.deploy.server import app as server_app
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
    "a bomb": (lambda _: zipped(pyproject__toml=b" " * (LARGEST_BYTES + 1)), "too large"),
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


@pytest.mark.parametrize("bundle", [foreign_bundle, disguised_bundle])
def test_a_node_never_loads_a_foreign_bundle(
    bundle: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = flowers("flwr.supernode.runtime.run_clientapp")
    use_own_node_app(module)
    with pytest.raises(Refusal):
        module.install_from_fab(bundle(tmp_path / "marker"), skip_prompt=True)
    assert "a run is refused: its bundle carries" in caplog.text
    load = module.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
    assert load("somebody/foreign", "1.0.0", "abc") is node_app.app
    assert not (tmp_path / "marker").exists()


def test_a_server_never_loads_a_foreign_bundle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = flowers("flwr.superlink.runtime.run_serverapp")
    use_own_server_app(module)
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
    module.run_(grid=None, server_app_dir="/", server_app_attr="foreign:server", context=context)
    assert served == [deployment]
    assert not (tmp_path / "marker").exists()


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
