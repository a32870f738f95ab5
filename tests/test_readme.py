"""The README's example runs as it stands, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert re.fullmatch(r"\d+\.\d% for \d+\.\d\d J\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(p.name for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_to_files(page: str) -> None:
    folder = ROOT if page == "README.md" else ROOT / "docs"
    text = (folder / page).read_text()
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (folder / target).exists(), f"{page}: {target}"


def test_commands_named_in_the_readme_exist() -> None:
    from camu.cli import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.typer_instance.info.name for group in app.registered_groups}
    assert set(re.findall(r"`camu ([a-z]+)", README)) <= known
