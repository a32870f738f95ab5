"""The code in README.md and docs/ runs, its links lead somewhere, and its lists are complete."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import unquote

import pytest
from mkdocs.utils.yaml import yaml_load
from typer.main import get_command

import camu as package
from camu.cli import app
from helpers.axe import violations
from helpers.browser import PATIENCE

Run = Callable[..., Any]  # the fixture `camu`

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = ("python", "sh", "console")
FENCE = re.compile(
    r"^(?: *<!-- (?P<mark>slow|not run): (?P<reason>[^\n]+) -->\n)?"
    r"(?P<indent> *)```(?P<language>\w+)[ \t]*\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the line on which it starts."""

    page: str
    line: int
    language: str
    text: str
    mark: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def read_blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        yield Block(name, line, match["language"], dedent(match["text"]), match["mark"])


def commands(block: Block) -> list[str]:
    """The lines of a shell block; a line that ends with a backslash continues on the next one."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return lines


BLOCKS = [block for page in PAGES for block in read_blocks(page) if block.language in LANGUAGES]
RUN_ALWAYS = [block for block in BLOCKS if block.mark is None]
RUN_SLOWLY = [block for block in BLOCKS if block.mark == "slow"]
NEVER_RUN = [block for block in BLOCKS if block.mark == "not run"]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory with the examples, as the current directory."""
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({block.page for block in RUN_ALWAYS}))
def test_page_runs(page: str, camu: Run, workplace: Path) -> None:
    space: dict[str, object] = {"__name__": page}
    for block in RUN_ALWAYS:
        if block.page == page:
            with chdir(workplace):
                run_block(block, camu, space)


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("block", RUN_SLOWLY, ids=str)
def test_slow_block_runs(block: Block, camu: Run) -> None:
    run_block(block, camu, {})


def run_block(block: Block, camu: Run, space: dict[str, object]) -> None:
    if block.language == "python":
        if match := re.match(r"# (\w+\.py)\b", block.text):  # a file that later commands use
            Path(match[1]).write_text(block.text, encoding="utf-8")
        # Empty lines in front, so that a traceback shows the line of the page.
        source = "\n" * block.line + block.text
        with redirect_stdout(io.StringIO()):
            exec(compile(source, block.page, "exec", dont_inherit=True), space)
        return
    printed = ""
    for line in commands(block):
        if line.startswith("cd "):
            os.chdir(line.removeprefix("cd "))
        elif line.startswith("camu "):
            done = camu(*words(line))
            assert done.code == 0, f"{block}: {line}\n{done.err}"
            printed += f"$ {line}\n{done.out}"
    if block.language == "console":
        assert stripped(printed) == stripped(block.text), f"{block}: the output has changed"


def words(line: str) -> list[str]:
    return shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("block", NEVER_RUN, ids=str)
def test_block_that_is_not_run_can_be_parsed(block: Block) -> None:
    assert block.language != "python"
    for line in commands(block):
        if line.startswith("camu "):
            parse(words(line))


def parse(arguments: list[str]) -> None:
    """Check command names and options without running anything."""
    command = get_command(app)
    context = command.make_context("camu", [], resilient_parsing=True)
    while hasattr(command, "resolve_command"):
        name, command, arguments = command.resolve_command(context, arguments)
    command.make_context(name, list(arguments), parent=context)


def stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cart-2,Hall,13.5,3.0,1.0,21,20,20,19", "cart-2,Hall,13.5,3.0,1.0,21,20,20,-4"),
        ("\ndoor-1,", "\ncart-2,"),
        ("id,region", "ident,region"),
        ("120,0,0,0,0,0,0,130", "120,0,0,0,0,0,0,"),
    ],
)
def test_the_page_on_fleets_shows_real_messages(old: str, new: str, camu: Run) -> None:
    text = Path("docs/examples/fleet.csv").read_text(encoding="utf-8")
    assert text.count(old) == 1
    Path("devices.csv").write_text(text.replace(old, new), encoding="utf-8")
    done = camu("plan", "--fleet", "devices.csv")
    assert done.code == 2
    message = done.err.removeprefix("error: ").strip()
    page = " ".join((ROOT / "docs" / "fleet.md").read_text(encoding="utf-8").split())
    assert message in page
    Path("devices.csv").write_text(text, encoding="utf-8")
    done = camu("run", "--fleet", "devices.csv")
    assert done.code == 2
    message = done.err.removeprefix("error: ").strip()
    assert message in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_in_the_text_exist(page: Path) -> None:
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name or group.typer_instance.info.name for group in app.registered_groups}
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"`camu ([a-z]+)[ `]", text)) <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_in_the_text_exist(page: Path) -> None:
    named = re.findall(
        r"`(?:python )?((?:benchmarks|docs|scripts|src|tests)/[\w./-]+)", page.read_text("utf-8")
    )
    for name in named:
        assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_the_architecture_page_lists_the_packages() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-z]\w*)` \|", text, re.MULTILINE))
    source = ROOT / "src" / "camu"
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    modules = {path.stem for path in source.glob("*.py")}
    assert packages <= listed <= packages | modules


def test_the_picture_of_the_packages_is_current() -> None:
    check = [sys.executable, ROOT / "scripts" / "draw-house", "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_the_site_builds_and_its_links_lead_somewhere(site: Path) -> None:
    for page in site.rglob("index.html"):
        for link in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text(encoding="utf-8")):
            if not re.match(r"\w+:|//", link):
                assert (page.parent / unquote(link)).exists(), f"{page.relative_to(site)}: {link}"


@pytest.mark.slow
@pytest.mark.xdist_group("site")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_wrong_on_the_site(
    browser: Any, site: Path, width: int, theme: str
) -> None:
    size = {"width": width, "height": 900}
    tab = browser.new_page(offline=True, viewport=size, color_scheme=theme)
    tab.set_default_timeout(PATIENCE)
    for name in ("index.html", "leaderboard/index.html"):
        tab.goto((site / name).as_uri())
        assert violations(tab) == []
    tab.close()


def test_the_api_page_lists_public_names_only() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^::: camu\.(\w+)$", text, re.MULTILINE))
    public = getattr(package, "__all__", None)
    assert public is None or listed <= set(public)


def nav_pages(entry: Any, part: str = "") -> Iterator[tuple[str, str]]:
    """The part of the site and the file of each page in mkdocs' navigation."""
    if isinstance(entry, str):
        yield part, entry
        return
    for item in entry:
        title, inside = next(iter(item.items())) if isinstance(item, dict) else ("", item)
        yield from nav_pages(inside, part or title)


NAV = list(nav_pages(yaml_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
PARTS = ("Tutorials", "How to", "Reference", "Explanation")
FROM_ROOT = {"index.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}


def test_every_page_is_in_the_navigation_once_and_owners_of_a_fleet_come_first() -> None:
    pages = [page for _, page in NAV]
    written = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(pages) == sorted({*written, *FROM_ROOT, "CHANGELOG.md"})
    assert pages[0] == "owners.md"
    assert tuple(part for part in dict.fromkeys(part for part, _ in NAV) if part in PARTS) == PARTS


@pytest.mark.parametrize(
    ("page", "most"),
    [(page, 900 if page == "index.md" else 1500) for part, page in NAV if part != "Reference"],
)
def test_a_page_is_short_enough_to_be_read(page: str, most: int) -> None:
    path = ROOT / FROM_ROOT[page] if page in FROM_ROOT else ROOT / "docs" / page
    words = re.findall(r"\S*\w\S*", path.read_text(encoding="utf-8"))
    assert len(words) <= most, f"{page}: {len(words)} words; split it by purpose, or cut it"


def test_no_line_of_the_pages_is_longer_than_a_reader_of_the_source_can_see() -> None:
    pages = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "src/camu/learning/native/README.md"]
    long = [
        f"{page.relative_to(ROOT)}:{number}: {len(line)} characters"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 and not line.startswith("|")  # a row of a table cannot be wrapped
    ]
    assert not long, "\n".join(long)
