"""Screenshots of every page of the studio, for README and docs, from a studio that runs on real models.

    python docs/screenshots.py [--runs runs] [--to docs/pictures]

The folder of runs must contain a run of the demo (`saccade demo`); `minilm` is included if it is in the cache.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, sync_playwright

DATE = "Donnerstag, 12. August 2014"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
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
            shoot(driver.chromium.launch(executable_path=browser, args=ARGUMENTS), address, values, options.to)
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
        tab.wait_for_selector(f"{selector}, .error", timeout=60_000)
        if tab.locator(".error").count():
            raise SystemExit(f"{path}: {tab.text_content('.error')}")
        tab.wait_for_timeout(500)
        tab.screenshot(path=folder / f"{name}.png")
        print(folder / f"{name}.png")
        tab.close()


if __name__ == "__main__":
    main()
