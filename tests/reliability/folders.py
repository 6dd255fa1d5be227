"""Whole run folders: their content byte by byte, without what the clock and the process decide."""

import tiny  # noqa: F401 - first: it makes the packages importable

from saccade.runs.equality import content, contents, differences, without

__all__ = ["content", "contents", "differences", "without"]
