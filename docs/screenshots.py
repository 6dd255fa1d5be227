"""Screenshots of every page of the studio, for README and docs, from a studio that runs on real models.

    python docs/screenshots.py [--runs runs] [--to docs/pictures]
    python docs/screenshots.py --every shots     # every page on a phone, a laptop and a projector, light and dark

The folder of runs must contain a run of the demo (`saccade demo`); `minilm` is included if it is in the cache, and so
are the runs of other demos: `shapes` (also with `--task captioning` and `--task visual_question_answering`),
`text-lines`, `morse`, `communities`, `maze`, `cartpole` and `digits`.
"""

import argparse
import base64
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

from playwright.sync_api import Browser, Page, sync_playwright

DATE = "Donnerstag, 12. August 2014"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PAGES = {  # name: address, selector to wait for, light or dark
    "runs": ("/runs", "#charts svg path", "light"),
    "watch": ("/watch/{run}", "#heads canvas", "light"),
    "look": ("/look?model={run}&source={text}", "body[data-shown]", "light"),
    "look-dark": ("/look?model={run}&source={text}&view=lines&words=0", ".lines path", "dark"),
    "look-minilm": ("/look?model=minilm&first={sentence}&map=bert.encoder.2.self&head=3", "body[data-shown]", "light"),
    "compare": ("/compare?model=minilm&a.first={tired}&b.first={wide}", ".ranking", "light"),
    "steps": ("/steps?model={run}&source={text}&map=decoder.0.cross&head=0&query=0", "#steps table", "light"),
    "flow": (
        "/flow?model=minilm&first={sentence}&position=9&stage=bert.encoder.3.self",
        "#stage .numbers canvas",
        "light",
    ),
    "generate": ("/generate?model={run}&source={text}&run=1", "body[data-generated]", "light"),
    "try": ("/try?model={run}&source={text}", "#predictions .card", "light"),
    "lessons": ("/lessons", "#norms svg", "light"),
}
EMPTY = {  # pages before anything was asked for, for --every
    "look-empty": ("/look", "body[data-ready]", "light"),
    "try-empty": ("/try", "#inputs .field", "light"),
    "samples-empty": ("/samples", "h1", "light"),
    "replay-empty": ("/replay", "body[data-ready]", "light"),
    "not-found": ("/nowhere", ".empty", "light"),
}
SIZES = {390: 844, 1280: 860, 1920: 1080}  # width: height of a window
# name: demo, inputs (a path: that picture; none: an example of the validation data), query that is shown, light or dark
EXAMPLES = {
    "look-class": ("shapes", {"image": Path("shapes/examples/class-1.png")}, 0, "light"),
    "look-caption": ("shapes-captioning", {"image": Path("shapes/examples/captions-1.png")}, 3, "light"),
    "look-question": (
        "shapes-visual-question-answering",
        {"image": Path("shapes/examples/questions-1.png"), "question": "how many red objects are there?"},
        0,
        "dark",
    ),
    "look-reading": ("text-lines", {"image": Path("text-lines/examples/2.png")}, 4, "light"),
    "look-speech": ("morse", {}, 3, "light"),
    "look-graph": ("communities", {}, 0, "light"),
    "look-walk": ("maze", {}, 0, "light"),
}
DEMOS = {  # name: demo, address, selector to wait for
    "replay": ("cartpole-adversarial-imitation", "/replay?model={run}&seed=1", "body[data-shown]"),
    "samples": ("digits", "/samples?model={run}", "body[data-shown]"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "pictures")
    parser.add_argument("--every", type=Path, metavar="FOLDER", help="every page, width and theme")
    options = parser.parse_args()
    runs = sorted(path.parent.name for path in Path(options.runs).glob("dates*/run.json"))
    if not runs:
        raise SystemExit(f"no run of the demo in {options.runs}; train one with `saccade demo`")
    values = {"run": quote(runs[-1]), "text": quote(DATE), "sentence": quote("The bank by the river was steep.")}
    animal = "The animal didn't cross the street because it was too {}."
    values |= {word: quote(animal.format(word)) for word in ("tired", "wide")}
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    (options.every or options.to).mkdir(exist_ok=True)
    command = [sys.executable, "-m", "saccade", "studio", "--no-browser", "--runs", options.runs]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, sync_playwright() as driver:
        try:
            address = re.search(r"http://\S+", process.stderr.readline())[0]
            window = driver.chromium.launch(executable_path=browser, args=ARGUMENTS)
            if options.every:
                shoot_every(window, address, values, options.every)
            else:
                shoot(window, address, PAGES, values, options.to)
                shoot_demos(window, address, Path(options.runs), options.to)
        finally:  # else a page that fails would wait for the studio
            process.terminate()


def shoot_every(browser: Browser, address: str, values: dict[str, str], folder: Path) -> None:
    """Write a picture of every page at every width, light and dark."""
    for width in SIZES:
        for scheme in ("light", "dark"):
            pages = {
                f"{name}-{width}-{scheme}": (path, selector, scheme)
                for name, (path, selector, _) in {**PAGES, **EMPTY}.items()
            }
            shoot(browser, address, pages, values, folder, width)


def shoot(
    browser: Browser,
    address: str,
    pages: dict[str, tuple[str, str, str]],
    values: dict[str, str],
    folder: Path,
    width: int = 1280,
) -> None:
    """Write a picture of each page; one that is wider than its window ends the program."""
    origin = re.match(r"http://[^/]+", address)[0]
    for name, (path, selector, scheme) in pages.items():
        tab = browser.new_page(viewport={"width": width, "height": SIZES[width]}, color_scheme=scheme)
        tab.goto(address)
        models = tab.evaluate("fetch('/look.json').then(answer => answer.json())")["models"]
        if "model=minilm" in path and "minilm" not in models:
            continue
        tab.goto(origin + path.format(**values))
        wait(tab, selector)
        if (wide := tab.evaluate("document.documentElement.scrollWidth")) > width:
            raise SystemExit(f"{tab.url[:200]}: {wide} pixels wide in a window of {width}")
        save(tab, folder / f"{name}.png")


def shoot_demos(browser: Browser, address: str, runs: Path, folder: Path) -> None:
    """Write a picture of an example, or of another page, of each demo that was run."""
    origin = re.match(r"http://[^/]+", address)[0]
    for name, (demo, inputs, query, scheme) in EXAMPLES.items():
        if run := newest(runs, demo):
            tab = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme=scheme)
            tab.goto(address)
            values = {key: url(runs / value) if isinstance(value, Path) else value for key, value in inputs.items()}
            tab.goto(f"{origin}/look?{urlencode({'model': run, **values}, quote_via=quote)}")
            if not inputs:
                wait(tab, "body[data-ready]")
                tab.click("#submit")
            wait(tab, "body[data-shown]")
            if query:
                tab.locator("#view .strip .token").nth(query).click()
            save(tab, folder / f"{name}.png")
    for name, (demo, path, selector) in DEMOS.items():
        if run := newest(runs, demo):
            tab = browser.new_page(viewport={"width": 1280, "height": 860})
            tab.goto(address)
            tab.goto(origin + path.format(run=quote(run)))
            wait(tab, selector)
            save(tab, folder / f"{name}.png")


def newest(runs: Path, demo: str) -> str | None:
    """Return the newest run of a demo."""
    trained = sorted(path.parent.name for path in runs.glob(f"{demo}-[0-9]*/run.json"))
    return trained[-1] if trained else None


def url(picture: Path) -> str:
    """Return a picture as a data URL."""
    return f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}"


def wait(tab: Page, selector: str) -> None:
    """Wait for an element; an error of the page ends the program."""
    tab.wait_for_selector(f"{selector}, .error", timeout=60_000)
    if errors := [text for text in tab.locator(".error").all_text_contents() if text.strip()]:
        raise SystemExit(f"{tab.url[:200]}: {errors[0]}")


def save(tab: Page, file: Path) -> None:
    """Write a picture of a page and close it."""
    tab.wait_for_timeout(500)
    tab.screenshot(path=file)
    print(file)
    tab.close()


if __name__ == "__main__":
    main()
