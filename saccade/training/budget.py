"""Budget: how many steps a run has. A time budget becomes a number of steps once, and that decision is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from saccade.atomic_io import read_json, write_json
from saccade.errors import ModelFileError
from saccade.training.optim import OptimConfig


@dataclass
class Budget:
    """Total steps of a run; None as long as a time budget has not been turned into steps.

    The learning rate must not depend on the clock, or a resumed run would differ from an unbroken one. So the
    clock is asked once, as late as the schedule allows: when a wsd schedule would begin to go down, else early.
    """

    file: Path
    total: int | None
    seconds: float = 0.0
    share: float = 0.0
    decided_at: int = 0

    @classmethod
    def of(cls, file: Path, steps: int, seconds: float, optim: OptimConfig) -> Budget:
        """A budget of steps, or of seconds if steps is 0; a decision found on disk holds."""
        if steps:
            return cls(file, steps)
        if file.exists():
            decision = read_json(file)
            total, decided_at = decision.get("total"), decision.get("decided_at")
            if not isinstance(total, int) or not isinstance(decided_at, int):
                raise ModelFileError(f"{file} must hold whole numbers `total` and `decided_at`, but does not")
            return cls(file, total, seconds, decided_at=decided_at)
        level = 1 - optim.cooldown if optim.schedule == "wsd" else 0.05
        return cls(file, None, seconds, level)

    def decide(self, done: int, elapsed: float) -> bool:
        """Fix the total once the time for it has come; `done` steps took `elapsed` seconds."""
        if self.total is not None or elapsed < self.share * self.seconds or done < 3:
            return False
        left = max(0.0, self.seconds - elapsed)
        self.total, self.decided_at = done + max(1, round(left * done / elapsed)), done
        write_json(self.file, {"total": self.total, "decided_at": done, "seconds": self.seconds})
        return True

    def total_at(self, step: int) -> int | None:
        """The total as it was known when this step was made for the first time: what its learning rate depends on."""
        return self.total if step >= self.decided_at else None

    def progress(self, done: int, elapsed: float) -> float:
        """Share of the run that is over, 0 to 1."""
        if self.total is not None:
            return min(1.0, done / self.total)
        return min(1.0, elapsed / self.seconds)
