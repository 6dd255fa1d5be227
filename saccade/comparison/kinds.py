"""The kinds of comparison by task, and the one that suits the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from saccade.comparison.images import ImageComparison
from saccade.comparison.kind import ComparisonKind
from saccade.comparison.translation import TranslationComparison
from saccade.errors import UsageError, suggest
from saccade.tasks import guess_task

KINDS: dict[str, ComparisonKind] = {kind.task: kind for kind in (TranslationComparison(), ImageComparison())}
