"""Fingerprints: a hash of the training and the validation data, which a resumed run must find again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol


class Fingerprinted(Protocol):
    """A part of a dataset that can be hashed."""

    def fingerprint(self) -> str: ...


def fingerprint(parts: Iterable[Fingerprinted]) -> str:
    """Return one hash for the parts of a dataset, validation data included."""
    return hash_lines(part.fingerprint() for part in parts)


def hash_lines(lines: Iterable[str]) -> str:
    """Return a hash of some lines in their order."""
    digest = hashlib.sha256()
    for line in lines:
        data = line.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:16]
