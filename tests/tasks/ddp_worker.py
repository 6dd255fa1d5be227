"""One of two processes that compute the gradients of a task together; argument RANK, a JSON line per job on stdin."""

import gc
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import saccade
from saccade.core import Split
from saccade.core import Task as Contract


def gradients(task: Contract, networks: dict[str, torch.nn.Module], step: int) -> dict[str, torch.Tensor]:
    """Return the accumulated gradients after the losses of a step, by network and parameter."""
    source = task.source(Split.TRAIN, 1)
    for before in range(step if source.state() is not None else 0):  # an environment is stepped in order
        source.at(before)
    torch.manual_seed(step)
    for network in task.networks().values():
        network.train()
    batch = source.at(step)[0]
    for name, loss in task.losses(batch, networks):
        trained = [value for value in task.networks()[name].parameters() if value.requires_grad]
        loss.backward(inputs=trained if len(networks) > 1 else None)
    return {
        f"{name}/{parameter}": value.grad
        for name, network in task.networks().items()
        for parameter, value in network.named_parameters()
        if value.grad is not None
    }


def compute(folder: str, name: str, run: str, data: str, rank: int) -> None:
    """Write the gradients of both processes to FOLDER/gradients.safetensors, in the process of rank 0."""
    task = saccade.load(run, device="cpu", task=name if "." in name else "").task
    task.load_data(Path(data))
    wrapped = {
        network: DistributedDataParallel(module, find_unused_parameters=True)
        for network, module in task.networks().items()
    }
    result = gradients(task, wrapped, rank)
    if rank == 0:
        save_file({name: value.contiguous() for name, value in result.items()}, Path(folder) / "gradients.safetensors")


def main() -> None:
    torch.set_num_threads(1)
    rank = int(sys.argv[1])
    for line in sys.stdin:
        folder, *job = json.loads(line)
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
        compute(folder, *job, rank=rank)
        gc.collect()  # the wrapped networks must go before the group they belong to
        distributed.barrier()
        distributed.destroy_process_group()
        print("done", flush=True)


if __name__ == "__main__":
    main()
