"""Screenshots of every page of the studio, for README and docs, from a studio that runs on real models.

    python docs/screenshots.py [--runs runs] [--to docs/pictures]

The folder of runs must contain a run of the demo (`saccade demo`); `minilm` is included if it is in the cache, and so
are the runs of `saccade demo shapes` (also with `--task captioning` and `--task visual_question_answering`) and of
`saccade demo text-lines`, each of its first example.
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
QUESTION = {"question": "how many red objects are there?"}
PAGES = {  # name: address, selector to wait for, light or dark
    "runs": ("/runs", "#charts svg path", "light"),
    "watch": ("/watch/{run}", "#heads canvas", "light"),
    "look": ("/look?model={run}&source={text}", "body[data-shown]", "light"),
    "look-dark": ("/look?model={run}&source={text}&view=lines&words=0", ".lines path", "dark"),
    "look-minilm": ("/look?model=minilm&first={sentence}&map=bert.encoder.2.self&head=3", "body[data-shown]", "light"),
    "steps": ("/steps?model={run}&source={text}&map=decoder.0.cross&head=0&query=0", "#steps table", "light"),
    "try": ("/try?model={run}&source={text}", "#predictions .card", "light"),
    "lessons": ("/lessons", "#norms svg", "light"),
}
IMAGES = {  # name: demo, example, other inputs, word whose attention is shown, light or dark
    "look-class": ("shapes", "shapes/examples/class-1.png", {}, 0, "light"),
    "look-caption": ("shapes-captioning", "shapes/examples/captions-1.png", {}, 3, "light"),
    "look-question": ("shapes-visual-question-answering", "shapes/examples/questions-1.png", QUESTION, 0, "dark"),
    "look-reading": ("text-lines", "text-lines/examples/2.png", {}, 4, "light"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "pictures")
    options = parser.parse_args()
    runs = sorted(path.parent.name for path in Path(options.runs).glob("dates*/run.json"))
    if not runs:
        raise SystemExit(f"no run of the demo in {options.runs}; train one with `saccade demo`")
    values = {"run": quote(runs[-1]), "text": quote(DATE), "sentence": quote("The bank by the river was steep.")}
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    options.to.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "saccade", "studio", "--no-browser", "--runs", options.runs]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, sync_playwright() as driver:
        try:
            address = re.search(r"http://\S+", process.stderr.readline())[0]
            window = driver.chromium.launch(executable_path=browser, args=ARGUMENTS)
            shoot(window, address, values, options.to)
            shoot_images(window, address, Path(options.runs), options.to)
        finally:  # else a page that fails would wait for the studio
            process.terminate()


def shoot(browser: Browser, address: str, values: dict[str, str], folder: Path) -> None:
    """Write a picture of every page."""
    origin = re.match(r"http://[^/]+", address)[0]
    for name, (path, selector, scheme) in PAGES.items():
        tab = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme=scheme)
        tab.goto(address)
        models = tab.evaluate("fetch('/look.json').then(answer => answer.json())")["models"]
        if "model=minilm" in path and "minilm" not in models:
            continue
        tab.goto(origin + path.format(**values))
        wait(tab, selector)
        save(tab, folder / f"{name}.png")


def shoot_images(browser: Browser, address: str, runs: Path, folder: Path) -> None:
    """Write a picture of the attention over an example of each demo with images that was run."""
    origin = re.match(r"http://[^/]+", address)[0]
    for name, (demo, example, others, word, scheme) in IMAGES.items():
        trained = sorted(path.parent.name for path in runs.glob(f"{demo}-[0-9]*/run.json"))
        if not trained:
            continue
        tab = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme=scheme)
        tab.goto(address)
        image = f"data:image/png;base64,{base64.b64encode((runs / example).read_bytes()).decode()}"
        tab.goto(f"{origin}/look?{urlencode({'model': trained[-1], 'image': image, **others}, quote_via=quote)}")
        wait(tab, "body[data-shown]")
        if word:
            tab.locator("#view .strip .token").nth(word).click()
        save(tab, folder / f"{name}.png")


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
