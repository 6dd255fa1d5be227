"""The site: built without a warning, nothing loaded from other servers, a reference that says what the program does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from saccade.demo import load_demo

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"?(https?:)?//", re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    return folder


def test_the_reference_is_up_to_date() -> None:
    """Written in a process of its own: in this one other tests may have registered commands and changed settings."""
    command = [sys.executable, "docs/reference.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_a_page_of_the_site_loads_nothing_from_other_servers(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    assert [page.name for page in pages if LOADED.search(page.read_text(encoding="utf-8"))] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert not any(re.search(r"url\(['\"]?https?:|@import ['\"]?https?:", text) for text in styles)


@pytest.mark.slow
def test_the_notebooks_and_linked_files_are_pages(site: Path) -> None:
    assert "saccade.train(" in re.sub("<[^>]+>", "", (site / "notebooks/1-translation-and-attention.html").read_text())
    assert (site / "notebooks/1-translation-and-attention.ipynb").is_file()
    assert "class Task" in re.sub("<[^>]+>", "", (site / "source/tests/examples/toy_images.py.html").read_text())
    assert "about/security.html" in (site / "serving.html").read_text() + (site / "studio.html").read_text()


@pytest.mark.slow
def test_the_search_works_without_a_server(site: Path, browser) -> None:
    """Opened from disk, with no network: the search finds the page of graphs."""
    page = browser.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.wait_for_function("typeof __index === 'object'")  # the index is loaded
    page.locator("input[name=query]").first.click()
    page.locator("input[name=query]").first.press_sequentially("communities", delay=50)
    page.wait_for_selector(".md-search-result__link", timeout=30_000)
    found = [link.get_attribute("href") for link in page.locator(".md-search-result__link").all()]
    assert any("demos.html" in address or "graphs.html" in address for address in found)
    assert [url for url in requests if url.startswith("http")] == []
    page.close()


def test_the_links_between_files_of_the_repository_exist() -> None:
    """Also in the files that the site does not have, such as README.md."""
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
            if not re.match(r"[a-z]+:|#", target):
                assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: no {target}"


def minutes_of(page: str) -> float:
    """Return the minutes of training that the commands of a page ask for."""
    minutes = 0.0
    for name, arguments in re.findall(r"^\$ saccade (train|demo) (.*)$", page, re.MULTILINE):
        if given := re.search(r"--minutes ([\d.]+)", arguments):
            minutes += float(given[1])
        elif name == "demo":
            demo = load_demo(arguments.split()[0])
            task = re.search(r"--task (\w+)", arguments)
            minutes += demo.task(task[1] if task else demo.default).minutes
    return minutes


def test_the_list_of_tutorials_gives_the_minutes_of_their_pages() -> None:
    folder = ROOT / "docs" / "tutorials"
    rows = re.findall(r"\((\w+)\.md\) \| .* \| ([\d.]+) \|$", (folder / "index.md").read_text(), re.MULTILINE)
    listed = {name: float(minutes) for name, minutes in rows}
    assert listed.keys() == {path.stem for path in folder.glob("*.md")} - {"index"}
    assert listed.pop("cluster") == 1  # 200 steps, given as steps
    assert listed == {name: minutes_of((folder / f"{name}.md").read_text(encoding="utf-8")) for name in listed}
