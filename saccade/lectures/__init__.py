"""Lectures: statements of the lectures, each shown by running it; files hold topics, the folder is the registry."""

from __future__ import annotations

import importlib
import importlib.util
import time
from functools import cache
from pathlib import Path

import torch

from saccade.data.cache import default_cache
from saccade.errors import ResourceError, UsageError, suggest
from saccade.lectures._row import Demonstration, Row
from saccade.lectures._status import Record, write_record

PACKAGES = {"images": "PIL", "audio": "soundfile", "rl": "gymnasium", "gguf": "gguf"}
"""the package that an extra brings"""


@cache
def list_rows() -> tuple[Row, ...]:
    """Return the rows of all files of this folder in the order of their numbers."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    rows = [row for name in names for row in importlib.import_module(f"saccade.lectures.{name}").ROWS]
    return tuple(sorted(rows, key=lambda row: row.id))


def find_row(name: str) -> Row:
    """Return the row of that number, such as R24."""
    rows = {row.id: row for row in list_rows()}
    if name.upper() not in rows:
        raise UsageError(f"no row '{name}'{suggest(name.upper(), list(rows))}")
    return rows[name.upper()]


def run_row(row: Row) -> tuple[Demonstration, Record]:
    """Run the demonstration of a row and save its status: shown only if every check has passed.

    A row whose models or packages are missing is not run; the reason says what to install. One that raises has failed.
    """
    demonstration, start = Demonstration(), time.perf_counter()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        try:
            _check_extras(row)
            row.run(demonstration)
        except ResourceError as error:
            record = Record("not run", 0.0, str(error))
        except Exception as error:  # noqa: BLE001 - whatever a demonstration raises, the others still run
            record = Record("failed", time.perf_counter() - start, f"{type(error).__name__}: {error}")
        else:
            failed = [check.statement for check in demonstration.checks if not check.passed]
            reason = "; ".join(failed) or ("" if demonstration.checks else "no check was made")
            seconds = time.perf_counter() - start
            record = Record("shown" if demonstration.passed else "failed", seconds, reason)
    write_record(row.id, record)
    return demonstration, record


def _check_extras(row: Row) -> None:
    """Refuse a row whose packages are not installed."""
    for extra in row.extras:
        if importlib.util.find_spec(PACKAGES[extra]) is None:
            raise ResourceError(
                f"{row.id} needs {PACKAGES[extra]}, which is not installed: pip install 'saccade[{extra}]'"
            )


def page_path(row: Row) -> Path:
    """Return where the page of a row is written to be opened in a browser: in the cache folder."""
    folder = default_cache() / "lectures"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{row.id}.html"
