"""What pages may do to a run: stop it, resume it, delete it, and write notes about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from saccade.errors import UsageError
from saccade.runs import folder as runs
from saccade.runs.notes import write_notes
from saccade.studio import live


def act(root: Path, name: str, action: str, body: Mapping[str, Any]) -> None:
    """Do something to a run of the folder."""
    if action not in ACTIONS:
        raise UsageError(f"a run can be changed by {', '.join(ACTIONS)}, nothing else")
    ACTIONS[action](root, name, body)


def _delete(root: Path, name: str, body: Mapping[str, Any]) -> None:
    """Delete a run, if the request repeats its name: the person was asked and has seen it."""
    run = live.get_run(root, name)
    if body.get("confirm") != name:
        raise UsageError(f"confirm must be the name of the run, '{name}', but is {str(body.get('confirm'))[:100]!r}")
    runs.delete(run)


def _write_notes(root: Path, name: str, body: Mapping[str, Any]) -> None:
    text = body.get("notes")
    if not isinstance(text, str):
        raise UsageError("notes must be a text")
    write_notes(live.get_run(root, name).folder, text)


ACTIONS: dict[str, Callable[[Path, str, Mapping[str, Any]], None]] = {
    "stop": lambda root, name, body: live.stop(root, name),
    "resume": lambda root, name, body: live.resume(root, name),
    "delete": _delete,
    "notes": _write_notes,
}
