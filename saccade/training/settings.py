"""Settings of the training loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from saccade.training.optim import OptimConfig


@dataclass(frozen=True)
class TrainConfig:
    """Length, precision, evaluation and checkpoints of a run."""

    steps: int = 0
    """length of the run in steps; give one of steps, minutes, epochs"""
    minutes: float = 0.0
    """length of the run in minutes; the learning-rate schedule is fitted to it; default 5"""
    epochs: float = 0.0
    """length of the run in passes over the training data"""
    seed: int = 1
    """random seed: the only source of randomness"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps"""
    precision: Literal["auto", "float32", "bfloat16", "fastest"] = "auto"
    """auto: bfloat16 autocast where a GPU supports it, else float32; fastest: on a CPU too, where it is faster"""
    compile: bool = False
    """compile the networks with torch.compile; where that fails, train without it and log why"""
    compile_backend: str = "inductor"
    """backend of torch.compile"""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """how processes of torchrun train together: ddp: each has the whole model; fsdp: each has a shard of weights,
    gradients and optimizer states, for models that one device cannot hold"""
    average: float = 0.0
    """decay of an exponential moving average of the weights, used to evaluate and predict; 0: none"""
    evaluate_every: int = 0
    """steps between evaluations; 0: about ten evaluations a run"""
    save_every: int = 0
    """steps between checkpoints; 0: with every evaluation and every five minutes"""
    keep: int = 2
    """number of newest checkpoints to keep, in addition to the best one; of equally good ones the last is the best"""
    patience: int = 0
    """early stopping: end the run after this many evaluations without improvement, equal ones included; 0: never"""
    optim: OptimConfig = field(default_factory=OptimConfig)

    def __post_init__(self) -> None:
        lengths, shown = (self.steps, self.minutes, self.epochs), f"{self.steps}, {self.minutes} and {self.epochs}"
        if sum(1 for length in lengths if length) > 1:
            raise ValueError(f"steps, minutes and epochs must not be given together, but are {shown}; give one of them")
        if min(lengths) < 0:
            raise ValueError(f"steps, minutes and epochs must be 0 or more, but are {shown}")
        for name, least in (("keep", 1), ("evaluate_every", 0), ("save_every", 0), ("patience", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed must be at least 0 and below 2^63, but is {self.seed}")
        if not 0 <= self.average < 1:
            raise ValueError(f"average must be at least 0 and below 1, but is {self.average}")
