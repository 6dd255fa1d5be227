"""A model that is saved and loaded is the same model."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from saccade.checks.differences import describe_module
from saccade.checks.examples import NoExamples
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import SEED
from saccade.errors import ModelFileError
from saccade.loading import load_run
from saccade.runs.weights import restore, weights

ORDER = 140
SUMMARY = "saved and loaded again, the model gives the same outputs, bit by bit"


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    try:
        before = _outputs(subject)
    except NoExamples as error:
        return skipped(str(error))
    with tempfile.TemporaryDirectory(prefix="saccade-check-") as folder:
        try:
            loaded = _foreign(subject, Path(folder)) if subject.foreign is not None else _scrambled(subject, folder)
        except ModelFileError as error:
            return Outcome("failed", f"what was saved cannot be loaded: {error}", "", _network(subject))
        after = _outputs(subject.with_networks(loaded))
    changed = _changed(before, after)
    if changed:
        came = _named(loaded)
        names = [name for name, value in _named(subject.networks).items() if not _same(value, came.get(name, value))]
        what = f"; {', '.join(names[:3])} came back changed" if names else "; all weights came back as they were"
        return Outcome("failed", f"after saving and loading {changed}{what}", "the first example", _network(subject))
    if subject.run is not None:
        return _folder(subject)
    return passed(f"{len(_named(subject.networks))} tensors written, read into changed weights, outputs identical")


def _outputs(subject: Subject) -> list[Tensor]:
    if subject.tokens:
        return [view.logits(view.tensor([view.sample(6)])) for view in subject.tokens]
    assert subject.task is not None
    return [subject.task.rerun(subject.predict(subject.examples[:1])[0]).logits]


def _changed(before: list[Tensor], after: list[Tensor]) -> str:
    for one, two in zip(before, after, strict=True):
        if one.shape != two.shape:
            return f"outputs have the shape {tuple(two.shape)} instead of {tuple(one.shape)}"
        if not _same(one, two):
            return f"an output differs by {float((one - two).abs().max()):.3g}"
    return ""


def _same(one: Tensor, two: Tensor) -> bool:
    return torch.equal(one, two)


def _named(networks: object) -> dict[str, Tensor]:
    assert isinstance(networks, dict)
    return {f"{n}.{name}": v for n, network in networks.items() for name, v in network.named_parameters()}


def _scrambled(subject: Subject, folder: str) -> dict[str, nn.Module]:
    """Write the weights as a checkpoint does, and read them into networks whose weights are other ones."""
    path = Path(folder) / "model.safetensors"
    save_file({name: value.contiguous() for name, value in weights(subject.networks).items()}, path)
    copies = subject.copies()
    generator = torch.Generator().manual_seed(SEED)
    for network in copies.values():
        for module in network.modules():
            for value in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                if value.is_floating_point():
                    value.copy_(torch.randn(value.shape, generator=generator).to(value))
    persistent = {name: set(network.state_dict()) for name, network in subject.networks.items()}
    for name, network in copies.items():  # what a network computes when it is built is not saved
        for path_of, value in network.named_buffers():
            if path_of not in persistent[name]:
                value.copy_(subject.networks[name].get_buffer(path_of))
    restore(copies, load_file(path), "the checkpoint")
    return copies


def _foreign(subject: Subject, folder: Path) -> dict[str, nn.Module]:
    """Write a model by its own save_pretrained, and read it by its own from_pretrained."""
    network = next(iter(subject.networks.values()))
    network.save_pretrained(folder)  # type: ignore[operator]
    loaded: nn.Module = type(network).from_pretrained(folder)  # type: ignore[attr-defined]
    return {"model": loaded.to(next(network.parameters()).device).train(network.training)}


def _folder(subject: Subject) -> Outcome:
    """Compare the networks with those that are opened from the run folder once more."""
    assert subject.run is not None and subject.task is not None
    again = load_run(subject.run, task=type(subject.task).__module__).networks()
    for name, network in subject.networks.items():
        for key, value in network.state_dict().items():
            if not _same(value.cpu(), again[name].state_dict()[key]):
                message = f"{key} of the model is not what its run folder holds"
                return Outcome("failed", message, "", str(subject.run.folder))
    return passed(f"{len(_named(subject.networks))} tensors written and read, and those of {subject.run.folder}")


def _network(subject: Subject) -> str:
    return f"state_dict and tied weights of {describe_module('', next(iter(subject.networks.values())))}"
