"""One of two processes that train a few steps of a task together; argument RANK, a JSON line per job on stdin."""

import gc
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from saccade.config import from_json
from saccade.core import Callback, Task
from saccade.errors import UsageError
from saccade.loading import find_task_class, open_run
from saccade.runs.folder import Run
from saccade.starting import divided
from saccade.training.distributed import Processes
from saccade.training.loop import Trainer

STEPS = 2


class Notes(Callback):
    """Keeps what the trainer logs."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def log(self, message: str) -> None:
        self.messages.append(message)


def opened(run: Run, name: str, data: Path) -> tuple[Task, Any]:
    """Return the untrained task of a run with its data, its batches divided for two processes where they can be."""
    custom = name if "." in name else ""
    kind = find_task_class(run, custom)
    try:
        config = divided(from_json(kind.Config, run.describe()["config"]), [], 2)
    except UsageError:
        config = from_json(kind.Config, run.describe()["config"])
    _, training = open_run(run, custom)
    torch.manual_seed(training.seed)
    task = kind.open(config, run.assets)
    task.load_data(data)
    return task, training


def train(folder: Path, name: str, run: str, data: str, parallel: str, processes: Processes | None) -> dict[str, Any]:
    """Return what a trainer logs and the records of a few steps; `refused`: why it does not train that way."""
    folder.mkdir(parents=True)
    task, training = opened(Run(Path(run)), name, Path(data))
    optim = replace(training.optim, clip=training.optim.clip or 1.0)
    notes = Notes()
    try:
        config = replace(training, parallel=parallel, optim=optim)
        trainer = Trainer(task, config, folder, notes, processes=processes)
    except UsageError as error:
        return {"refused": str(error)}
    with trainer.batches:
        return {"records": [trainer._train_step() for _ in range(STEPS)], "notes": notes.messages}


def main() -> None:
    torch.set_num_threads(1)
    rank = int(sys.argv[1])
    for line in sys.stdin:
        folder, *job = json.loads(line)
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
        processes = Processes(rank, 2)
        results = {mode: train(Path(folder) / f"{mode}-{rank}", *job, mode, processes) for mode in ("ddp", "fsdp")}
        del processes
        gc.collect()  # the wrapped networks must go before the group they belong to
        distributed.barrier()
        distributed.destroy_process_group()
        print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
