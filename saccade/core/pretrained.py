"""Pretrained models: a network with all that loading and exporting its weights involves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Pretrained:
    """A network with its config, its processor and its family (the file format)."""

    network: nn.Module
    config: Any
    """the config the network was built from"""
    processor: Any
    """tokenizers and special ids (or an image or audio processor)"""
    family: Any
    """a module of `pretrained.families`; None: chosen on export"""
    task: str
    """name of the task that runs it without fine-tuning"""
    head: Any = None
    """what else that task needs: the labels of a classifier, the pooling of a sentence encoder"""
    base: str = ""
    """what it was fine-tuned from: a ref of the user; empty: nothing, or unknown"""


Base = Pretrained | None
"""the pretrained model a task starts from, if any"""
