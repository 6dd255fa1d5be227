"""Hooks of MkDocs: pages for the files of the repository that the docs link to, and for the notebooks.

The docs link to files as they lie in the repository, so that the links work there too. Here a link out of docs/ becomes
one to a page of the site: a text of the root is a page of About, code a page that shows it. A link to what does not
exist is left as it is, and `mkdocs build --strict` reports it.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from posixpath import dirname, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ABOUT = {
    "CHANGELOG.md": "about/changelog.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "SECURITY.md": "about/security.md",
}
PARTS = re.compile(r"(^```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)  # code and the text between
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)(#[^)\s]*)?(?=\))")
LIST = re.compile(
    r"^(?![*-] |[\s|#>])(.+)\n(?=[*-] )", re.MULTILINE
)  # after a paragraph: Markdown needs a line between
LANGUAGES = {".py": "python", ".js": "javascript", ".toml": "toml", ".yml": "yaml", ".sh": "bash", ".css": "css"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are no files of docs/."""
    for name, uri in ABOUT.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text(encoding="utf-8")))
    for path in sorted(DOCS.glob("notebooks/*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook(path)))
    linked = {target for file in files.documentation_pages() for target in targets(file) if target.is_file()}
    for path in sorted(linked):
        uri = page_uri(path)
        if uri.startswith("source/"):
            files.append(File.generated(config, uri, content=source(path), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links of a page to pages of the site, and read lists as the repository shows them."""
    folder = origin(page.file.src_uri)
    if folder is None:
        return markdown

    def rewrite(target: str, anchor: str) -> str:
        path = Path(os.path.normpath(folder / target))
        return f"{relpath(page_uri(path), dirname(page.file.src_uri)) if path.is_file() else target}{anchor}"

    return replace_links(separate_lists(markdown), rewrite)


def separate_lists(markdown: str) -> str:
    """Put an empty line between a paragraph and a list."""
    parts = PARTS.split(markdown)
    parts[::2] = [LIST.sub(r"\1\n\n", part) for part in parts[::2]]
    return "".join(parts)


def targets(file: File) -> list[Path]:
    """Return the paths that a page links to."""
    folder = origin(file.src_uri)
    paths: list[Path] = []

    def keep(target: str, anchor: str) -> str:
        paths.append(Path(os.path.normpath((folder or ROOT) / target)))
        return target + anchor

    if folder is not None:
        replace_links(file.content_string, keep)
    return paths


def replace_links(markdown: str, replace: Callable[[str, str], str]) -> str:
    """Replace the target and the anchor of every relative link outside of code."""
    parts = PARTS.split(markdown)
    parts[::2] = [LINK.sub(lambda link: replace(link[1], link[2] or ""), part) for part in parts[::2]]
    return "".join(parts)


def origin(uri: str) -> Path | None:
    """Return the folder that the links of a page start from; None for code and notebooks, whose links stay."""
    if uri.startswith(("source/", "notebooks/")):
        return None
    return ROOT if uri in ABOUT.values() else (DOCS / uri).parent


def page_uri(path: Path) -> str:
    """Return the address of the page, below docs/, that shows a file of the repository."""
    if path == ROOT / "README.md":
        return "index.md"
    if path.is_relative_to(DOCS):
        return (path.with_suffix(".md") if path.suffix == ".ipynb" else path).relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    return ABOUT.get(name, f"source/{name}.md")


def source(path: Path) -> str:
    """Return a file of the repository as a page."""
    text, ticks = path.read_text(encoding="utf-8").rstrip(), "````"
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {path.relative_to(ROOT).as_posix()}\n\n{ticks}{language}\n{text}\n{ticks}\n"


def notebook(path: Path) -> str:
    """Return a notebook, which is saved without outputs, as a page with a link to the file."""
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]).strip() for cell in cells]
    parts = [
        text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for cell, text in zip(cells, texts, strict=True)
    ]
    note = f"[Download this notebook]({path.name}); it runs offline, in about a minute."
    return "\n\n".join([parts[0], note, *parts[1:]]) + "\n"
