"""A language model whose second process cannot read its data, or runs out of memory at the second step."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from saccade.errors import DataError
from saccade.tasks import language_model


class Task(language_model.Task):
    def load_data(self, data: Path, **options: Any) -> list[str]:
        if os.environ.get("RANK") == "1" and self.config.batch_size == 2:
            raise DataError(f"{data}:7: the disk of this machine has no such line")
        return super().load_data(data, **options)

    def losses(self, batch: Any, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        if os.environ.get("RANK") == "1" and networks["model"] is not self.model:
            raise RuntimeError("can't allocate memory: you tried to allocate 9000 bytes")
        yield from super().losses(batch, networks)
