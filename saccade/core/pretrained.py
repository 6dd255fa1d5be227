"""Pretrained models: what reading foreign weights gives, and what exporting writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Pretrained:
    """A network with what it needs to read its inputs, and the family that knows its file format."""

    network: nn.Module
    config: Any
    """the config the network was built from"""
    processor: Any
    """tokenizers and special ids (or an image or audio processor)"""
    family: Any
    """of `pretrained/`; None: not yet decided, as for a model of ours that is to be exported"""
    task: str
    """the task that can run it as it is"""


Base = Pretrained | None
"""the pretrained model a task starts from, if any"""
