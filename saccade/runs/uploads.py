"""Uploads: data files that came through a browser, kept by the hash of their content so that a run can be resumed."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from saccade.atomic_io import new_file, save_error
from saccade.errors import UsageError

FOLDER = ".uploads"  # in the folder of runs; hidden: it is no run
LONGEST_NAME = 60  # characters


def keep_upload(root: Path, name: str, content: bytes) -> str:
    """Keep a file and return its reference; the same content under the same name is kept once."""
    reference = hashlib.sha256(content).hexdigest()[:32] + "/" + safe_name(name)
    path = root / FOLDER / reference
    if not path.is_file():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(path) as file:
                file.write(content)
        except OSError as error:
            raise save_error(path, error) from error
    return reference


def find_upload(root: Path, reference: str) -> Path:
    """Return the path of an upload; a reference never names anything else."""
    identity, _, name = reference.partition("/")
    path = root / FOLDER / identity / name
    if not re.fullmatch("[0-9a-f]{32}", identity) or name != safe_name(name) or not path.is_file():
        raise UsageError("this file was not uploaded here; choose it again")
    return path


def safe_name(name: str) -> str:
    """Return the last part of a file's name with letters, digits and ' ()-_.' alone."""
    last = re.split(r"[/\\]", name)[-1]
    return re.sub(r"[^\w ().-]", "_", last)[-LONGEST_NAME:].lstrip(". ") or "data"
