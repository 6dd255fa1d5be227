"""Every parameter takes part: it has a gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.checks.differences import describe_module
from saccade.checks.examples import NoExamples
from saccade.checks.invariants.accumulation import gradients
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import SEED
from saccade.core import Split

ORDER = 150
SUMMARY = "every parameter that is trained has a gradient"
STEPS = 3  # batches in which a parameter may have its gradient


def run(subject: Subject) -> Outcome:
    try:
        used = _with_data(subject) if not subject.no_data else _without_data(subject)
    except NoExamples as error:
        return skipped(str(error))
    unused = [name for name, value in used.items() if not value]
    source = f"{STEPS} batches of the run" if not subject.no_data else "one example"
    if not unused:
        return passed(f"{len(used)} parameters have a gradient in {source}")
    first = unused[0]
    network = next(iter(subject.networks.values()))
    parts = first.split(".")
    if len(subject.networks) > 1:
        network = subject.networks[parts.pop(0)]
    path = ".".join(parts[:-1])
    named = f"{', '.join(unused[:5])}{' ...' * (len(unused) > 5)}"
    message = f"{len(unused)} of {len(used)} parameters have no gradient in {source}: {named}"
    # Without data only one way through the model is taken: a head of another task may be unused on it.
    return Outcome(
        "warning" if subject.no_data and subject.foreign is None else "failed",
        message,
        "",
        describe_module(path, network.get_submodule(path)),
    )


def _with_data(subject: Subject) -> dict[str, bool]:
    """Return whether each parameter has a gradient in some batch.

    A loss that is 0 gives none to any parameter of its network, as the hinge loss of a discriminator that tells all
    examples apart: then nothing is known, and nothing is called unused.
    """
    used: dict[str, bool] = {}
    source = subject.source(Split.TRAIN)
    for step in range(STEPS):
        for name, grad in gradients(subject, subject.on_device(source.at(step))).items():
            used[name] = used.get(name, False) or bool(grad.any())
        if all(used.values()):
            break
    groups = [""] if len(subject.networks) == 1 else [f"{network}." for network in subject.networks]
    silent = tuple(group for group in groups if not any(used[name] for name in used if name.startswith(group)))
    return {name: value for name, value in used.items() if not (silent and name.startswith(silent))}


def _without_data(subject: Subject) -> dict[str, bool]:
    """Take the gradient of a random combination of all outputs for one example."""
    outputs: list[Tensor] = []
    if subject.foreign is not None:
        loss = subject.foreign.loss([subject.foreign.sample(8), subject.foreign.sample(5, 1)])
        outputs = (
            [loss[0][None]] if loss else [subject.foreign.logits(subject.foreign.tensor([subject.foreign.sample(8)]))]
        )
    elif subject.task is not None:
        outputs = [subject.task.rerun(prediction).logits for prediction in subject.predictions[:2]]
    generator = torch.Generator().manual_seed(SEED)
    total = sum((out * torch.randn(out.shape, generator=generator).to(out)).sum() for out in outputs)
    assert isinstance(total, Tensor)
    named = {
        name if len(subject.networks) == 1 else f"{network}.{name}": parameter
        for network, module in subject.networks.items()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and (parameter.numel() > 1 or subject.foreign is not None)
    }  # of ours without scalars: the temperature of a contrastive loss acts in the loss alone
    if not total.requires_grad:
        raise NoExamples("the task recomputes its predictions without gradients")
    grads = torch.autograd.grad(total, list(named.values()), allow_unused=True, materialize_grads=True)
    return {name: bool(grad.any()) for name, grad in zip(named, grads, strict=True)}
