"""Another dtype or device changes no more than rounding, and every tensor moves with the model."""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.checks.differences import describe_module, first_difference, tolerance_of
from saccade.checks.examples import NoExamples
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import TokenModel

ORDER = 130
SUMMARY = "in float64, in bfloat16 and on another device the outputs are the same but for rounding"
TOKENS = 6


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    try:
        failure = _stays_behind(subject)
        if failure is not None:
            return failure
        if not subject.tokens:
            return _autocast(subject)
    except NoExamples as error:
        return skipped(str(error))
    done = []
    for view in subject.tokens:
        for target in _targets():
            if isinstance(target, torch.dtype) and subject.dtype not in (torch.float32, torch.float64):
                continue  # weights that are rounded or packed already
            failure = _moved(subject, view, target)
            if failure is not None:
                return failure
            done.append(str(target).removeprefix("torch."))
    return passed(f"compared with {', '.join(dict.fromkeys(done)) or 'nothing but itself'}")


def _targets() -> list[torch.dtype | torch.device]:
    """Return the types and devices to compare with."""
    device = [torch.device("cuda")] if torch.cuda.is_available() else []
    return [torch.float64, torch.bfloat16, *device]


def _stays_behind(subject: Subject) -> Outcome | None:
    """Find tensors that are neither parameters nor buffers, which `to` does not move, and that are used as they are.

    In a copy they are on another device than the rest: a network that computes such a tensor anew where its device is
    another one (a cache) still works, any other one fails.
    """
    copies = subject.copies()
    for name, network in copies.items():
        for path, module in network.named_modules():
            for attribute, value in list(vars(module).items()):
                if not isinstance(value, Tensor) or not value.numel():
                    continue
                module.__dict__[attribute] = value.to("meta")
                try:
                    _call(subject.with_networks(copies))
                except (RuntimeError, NotImplementedError, ValueError):
                    return Outcome(
                        "failed",
                        f"the tensor {attribute} is a plain attribute: it stays on {value.device} in {value.dtype} "
                        "when the model moves; register it as a buffer",
                        f"{name}.to(device) leaves {path or name}.{attribute} behind",
                        describe_module(path, module),
                    )
                module.__dict__[attribute] = value
    return None


def _call(subject: Subject) -> None:
    """Compute some outputs."""
    for view in subject.tokens:
        view.logits(view.tensor([view.sample(TOKENS)]))
    if not subject.tokens and subject.task is not None:
        subject.task.rerun(subject.predictions[0])


def _moved(subject: Subject, view: TokenModel, target: torch.dtype | torch.device) -> Outcome | None:
    moved = view.of(subject.copies()[view.name].to(target))
    ids = view.tensor([view.sample(TOKENS)])
    try:
        expected, actual = view.logits(ids), moved.logits(moved.tensor([view.sample(TOKENS)]))
    except (RuntimeError, TypeError) as error:
        message = f"in {target} the model raises {type(error).__name__}: {error}"
        return Outcome("failed", message, f"ids {ids.tolist()}", describe_module("", view.root()))
    if target == torch.bfloat16:  # depth multiplies its rounding: only what is wrong altogether is found
        problem = "" if bool(actual.isfinite().all()) else "gives numbers that are not finite"
        scale = float(expected.abs().max())
        far = float((expected.double() - actual.double()).abs().max())
        problem = problem or (f"differs by {far:.3g} of {scale:.3g}" if far > 0.5 * scale else "")
        if problem:
            where = describe_module("", view.root())
            return Outcome("failed", f"in bfloat16 the model {problem}", f"ids {ids.tolist()}", where)
        return None
    difference = first_difference(expected, actual, tolerance_of(expected))
    if difference is None:
        return None
    message = f"in {target} position {difference.index[1]} is {difference}"
    return Outcome("failed", message, f"ids {ids.tolist()}", describe_module("", view.root()))


def _autocast(subject: Subject) -> Outcome:
    """Compare the outputs with those under autocast, as in training with mixed precision."""
    assert subject.task is not None
    prediction = subject.predictions[0]
    plain = subject.task.rerun(prediction).logits
    with torch.autocast(plain.device.type, dtype=torch.bfloat16):
        cast = subject.task.rerun(prediction).logits
    scale = float(plain.abs().max())
    far = float((plain.double() - cast.double()).abs().max())
    if not far <= 0.5 * max(scale, 1e-6):
        message = f"under autocast to bfloat16 an output differs by {far:.3g} of {scale:.3g}"
        return Outcome(
            "failed", message, "the first example", describe_module("", next(iter(subject.networks.values())))
        )
    return passed(f"under autocast to bfloat16 outputs differ by {far:.1e} of {scale:.3g}; no tensor stays behind")
