"""The demo in a terminal: what it opens in the browser while it learns and when it has learnt."""

import os
import pty
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def spoken(terminal, wanted):
    """What a terminal says until something is said; the end of what it says is an error."""
    result = ""
    while not re.search(wanted, result):
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the other side has closed the terminal
            part = b""
        assert part, f"the demo ended without saying {wanted!r}: {result[-2000:]}"
        result += part.decode(errors="replace")
    return result


def test_the_demo_opens_what_it_learns_and_what_it_has_learnt(tmp_path, browser, shoot):
    opened = tmp_path / "opened.txt"
    note = tmp_path / "browser"
    note.write_text(f'#!/bin/sh\necho "$1" >> "{opened}"\n')
    note.chmod(0o755)
    terminal, side = pty.openpty()
    words = [sys.executable, "-m", "saccade", "demo", "--steps", "350", "--runs", str(tmp_path / "runs")]
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    environment |= {
        "BROWSER": f"{note} %s",
        "SACCADE_CACHE": str(tmp_path / "cache"),
        "TERM": "dumb",
        "OMP_NUM_THREADS": "1",
    }
    with subprocess.Popen(words, stdin=side, stdout=side, stderr=side, env=environment, close_fds=True) as process:
        os.close(side)
        try:
            spoken(terminal, r"step \d+  valid")
            tab = browser.new_page()
            tab.goto(opened.read_text().split()[0])
            tab.wait_for_selector("#heads canvas", timeout=30_000)  # attention as it forms
            shoot(tab, "demo-watch")
            spoken(terminal, "press any key")
            tab.goto(opened.read_text().split()[1])
            tab.wait_for_selector("body[data-shown]", timeout=30_000)
            assert tab.text_content("#selection").startswith("Alignment")
            assert re.fullmatch(r"[\d-]{4,12}", tab.text_content("#output"))
            shoot(tab, "demo-look")
            tab.close()
            os.write(terminal, b"q")
            assert process.wait(30) == 0
        finally:
            process.kill()
            os.close(terminal)
