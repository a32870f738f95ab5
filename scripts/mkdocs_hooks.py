"""MkDocs hooks: the site's home page is README.md, and the other root files are pages of it too."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Root files that README links to, and where they are on the site.
FROM_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CITATION.cff": "CITATION.cff",
    "LICENSE": "LICENSE",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the root files. Their links into docs/ become links within the site."""
    for name, target in FROM_ROOT.items():
        content = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, target, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """In api.md, point each `::: camu.NAME` at the module that defines NAME.

    The names of `camu` are loaded lazily, so mkdocstrings cannot find them by reading the source.
    A public name without an entry is added at the end; an entry that `camu` lacks is left out.
    """
    if page.file.src_uri != "api.md":
        return markdown
    public = getattr(import_module("camu"), "__all__", ())
    listed = re.findall(r"^::: camu\.(\w+)$", markdown, flags=re.MULTILINE)
    missing = [name for name in public if name not in listed and not name.startswith("__")]
    if missing:
        markdown += "\n## More\n\n" + "\n\n".join(f"::: camu.{name}" for name in missing) + "\n"
    return re.sub(r"^::: camu\.(\w+)$", lambda match: entry(match[1]), markdown, flags=re.MULTILINE)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """For screen readers: the theme's search dialog gets a name, and an empty cell is no head."""
    named = output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", named)


def entry(name: str) -> str:
    """The mkdocstrings line of a public name, such as `::: camu.world.world.World`."""
    value = getattr(import_module("camu"), name, None)
    if value is None:
        return ""
    if isinstance(value, type) or callable(value):
        return f"::: {value.__module__}.{value.__qualname__}"
    return f"::: camu.{name}"
