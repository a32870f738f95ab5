"""Files for others: how to cite, to build and to take part."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import camu

ROOT = Path(__file__).parents[1]
FORMS = sorted(ROOT.glob(".github/**/*.yml"))


def _container() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, with lines joined."""
    text = re.sub(r"\\\n", " ", (ROOT / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def test_every_file_names_the_same_version_licence_and_title() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    archive = json.loads((ROOT / ".zenodo.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == camu.__version__
    assert citation["title"] == archive["title"]
    assert citation["license"] == archive["license"] == project["license"]
    assert archive["keywords"] == project["keywords"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_workflows_and_forms_are_yaml_with_steps_or_questions(path: Path) -> None:
    form: dict[str, Any] = yaml.safe_load(path.read_text())
    if path.parent.name == "workflows":
        for job in form["jobs"].values():
            assert all("uses" in step or "run" in step for step in job["steps"])
            used = [step["uses"] for step in job["steps"] if "uses" in step]
            assert all("@" in name for name in used)
    elif path.parent.name == "ISSUE_TEMPLATE" and path.stem != "config":
        assert {part["type"] for part in form["body"]} <= {"textarea", "input", "dropdown"}


def test_workflows_call_what_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    runs = [
        step["run"]
        for path in ROOT.glob(".github/workflows/*.yml")
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    named = {run.split()[1] for run in runs if run.startswith("make ")}
    assert named
    assert named <= targets


def test_the_container_copies_what_is_there_and_is_not_left_out() -> None:
    ignored = (ROOT / ".containerignore").read_text().split()
    assert ignored[0] == "*"
    for name, rest in _container():
        if name != "COPY" or rest.startswith("--from"):
            continue
        for source in shlex.split(rest)[:-1]:
            plain = source.replace("[", "").replace("]", "")
            assert f"!{plain}" in ignored
            assert plain == source[:-3] + "s" or (ROOT / plain).exists()  # wheel[s] may be missing


def test_the_container_runs_camu_as_a_user_without_rights_and_says_whether_it_works() -> None:
    last = [i for i, (name, _) in enumerate(_container()) if name == "FROM"][-1]
    stage = _container()[last:]
    names = [name for name, _ in stage]
    users = [rest for name, rest in stage if name == "USER"]
    assert users == ["camu"]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert not any(name == "RUN" for name in names[names.index("USER") :])
    assert "HEALTHCHECK" in names
    assert dict(stage)["ENTRYPOINT"] == '["camu"]'


def test_the_containers_extras_are_extras_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = next(rest for name, rest in _container() if rest.startswith("EXTRAS="))
    assert set(asked.removeprefix("EXTRAS=").split(",")) <= set(project["optional-dependencies"])


def test_images_and_actions_are_named_with_a_version() -> None:
    images = [rest.split()[0] for name, rest in _container() if name == "FROM"]
    assert images
    assert all(":" in image and not image.endswith(":latest") for image in images)
