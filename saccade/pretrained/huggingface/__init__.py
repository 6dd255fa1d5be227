"""Hugging Face: models read from and written to the folders that transformers uses; no remote code, no pickle."""

from saccade.pretrained.huggingface.reading import FAMILIES, Foreign, read, read_config
from saccade.pretrained.huggingface.writing import write

__all__ = ["FAMILIES", "Foreign", "read", "read_config", "write"]
