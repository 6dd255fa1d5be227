"""Reports on heads in the cache on disk, by the hash of weights, rows and settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from saccade.core import Progress, Task, ignore_progress
from saccade.core.serialize import inputs_to_json
from saccade.data.cache import EntryWriter, cached, digest
from saccade.errors import UsageError
from saccade.look.head_report import HeadReport
from saccade.look.head_survey import SurveySettings, survey_heads

FORMAT = 1
ARRAY = "report"


def cached_survey(
    task: Task,
    inputs: Sequence[Mapping[str, Any]],
    settings: SurveySettings = SurveySettings(),
    progress: Progress = ignore_progress,
) -> HeadReport:
    """Return the report on the heads of a task over some rows; computed unless it is in the cache.

    An entry that is damaged is computed again, and a note says so.
    """
    other = next((field.name for field in task.inputs if field.kind != "text" and not field.optional), None)
    if other is not None:
        raise UsageError(f"inputs must be texts to compare heads over many rows, but {other} is none")
    rows = [inputs_to_json(example) for example in inputs]

    def build(writer: EntryWriter) -> dict[str, Any]:
        report = survey_heads(task, inputs, settings, progress)
        writer.array(ARRAY, "uint8").write_bytes(json.dumps(report.to_json()).encode())
        return {"heads": len(report.heads)}

    entry = cached("heads", [FORMAT, weights_hash(task), digest(rows), asdict(settings)], build)
    report = HeadReport.from_json(json.loads(bytes(entry.arrays[ARRAY])))
    return report.with_notes(entry.notes)


def weights_hash(task: Task) -> str:
    """Return the hash of the weights of a task, with their names and types, and of its settings."""
    result = hashlib.sha256(f"{type(task).__module__} {task.config}".encode())
    for network, module in sorted(task.networks().items()):
        for name, value in sorted(module.state_dict().items()):
            if isinstance(value, torch.Tensor):
                result.update(f"{network}.{name} {value.dtype} {tuple(value.shape)}".encode())
                result.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return result.hexdigest()
