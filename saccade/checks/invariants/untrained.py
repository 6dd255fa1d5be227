"""No parameter of a trained run is still what it was initialised with."""

from __future__ import annotations

import torch

from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.loading import open_run

ORDER = 160
SUMMARY = "after training, no parameter is still what the seed of the run initialised it with"


def run(subject: Subject) -> Outcome:
    if subject.run is None or subject.task is None:
        return skipped("only the folder of a run knows its seed; check the run by its name or folder")
    initial, training = open_run(subject.run, type(subject.task).__module__)
    networks = initial.networks()
    same, count = [], 0
    for name, network in subject.networks.items():
        first = dict(networks[name].named_parameters())
        for key, value in network.named_parameters():
            if value.requires_grad:
                count += 1
                if torch.equal(value.detach().cpu(), first[key].detach()):
                    same.append(key if len(networks) == 1 else f"{name}.{key}")
    if not same:
        return passed(f"{count} parameters differ from their initial values (seed {training.seed})")
    named = f"{', '.join(same[:5])}{' ...' * (len(same) > 5)}"
    message = f"{len(same)} of {count} parameters are still what seed {training.seed} initialised them with: {named}"
    return Outcome(
        "failed", message, "", "whether the optimizer has these parameters, and whether the loss reaches them"
    )
