"""Errors of tasks that are opened from pretrained models."""

from saccade.core import Pretrained
from saccade.errors import UsageError


def cannot_run(pretrained: Pretrained, task: str) -> UsageError:
    """Return the error for a pretrained network that is not of the kind a task needs."""
    kind = pretrained.task if pretrained.family is None else pretrained.family.name
    return UsageError(f"a {kind} cannot run as the task {task}; leave out --task, or use {pretrained.task}")
