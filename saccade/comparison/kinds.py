"""The kinds of comparison by task, and the one that suits the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from saccade.comparison.images import ImageComparison
from saccade.comparison.kind import ComparisonKind
from saccade.comparison.translation import TranslationComparison
from saccade.data.formats.image_search import find_images
from saccade.data.settings import ImageSettings
from saccade.errors import UsageError
from saccade.tasks import guess_task

KINDS: dict[str, ComparisonKind] = {kind.task: kind for kind in (TranslationComparison(), ImageComparison())}


def choose_kind(data: Path, overrides: Sequence[str], task: str) -> ComparisonKind:
    """Return the kind of comparison of a task; without one the data decide: images with labels, or else pairs."""
    if not task and find_images(data, ImageSettings()) is not None:
        task = guess_task(data, overrides)
    if task and task not in KINDS:
        raise UsageError(
            f"task must be {' or '.join(KINDS)} to compare architectures, but is {task}; name it with --task"
        )
    return KINDS[task or TranslationComparison.task]
