"""The notebooks run, as files, from the root of the repository."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))


def test_there_are_notebooks_and_the_page_lists_them() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        assert f"(notebooks/{path.name})" in page


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_in_percent_format(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# %% [markdown]"
    cells = [line for line in lines if line.startswith("# %%")]
    assert set(cells) == {"# %%", "# %% [markdown]"}
