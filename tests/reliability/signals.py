"""Signals: SIGINT, SIGTERM and SIGHUP at random moments; each run is resumed and must end as if there had been none.

python tests/reliability/signals.py                20 signals
python tests/reliability/signals.py --count 100    the long form

Within the training loop a signal ends the process after its step, with that step saved and exit code 128 + its number.
Before and after the loop there is nothing to save: the process ends at once, with the action of the system. A resumed
run must end with the same files as one that was left alone, byte by byte.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, print_figure
from folders import differences
from slow_save import slow_down
from tiny import Workspace, clear, log, newest, temporary

STEPS = 60
SETTINGS = [f"train.steps={STEPS}", "train.save_every=5", "train.evaluate_every=25", "train.average=0.9"]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS_A_RUN = 4
EARLY = 0.15  # of the signals come while the run is being prepared
MARK = "in-the-loop"


def mark_loop() -> None:
    """Slow down saving, and leave a file in the working folder while the loop handles signals."""
    from saccade.training import loop

    slow_down()
    handle = loop.devices.stop_signals

    @contextlib.contextmanager
    def marked() -> Iterator[object]:
        with handle() as stop:
            Path(MARK).touch()
            try:
                yield stop
            finally:
                Path(MARK).unlink()

    loop.devices.stop_signals = marked  # type: ignore[assignment]


class Target:
    """A run that gets signals until they are used up, and then finishes."""

    def __init__(self, workspace: Workspace, name: str, rng: random.Random) -> None:
        self.workspace, self.name, self.rng = workspace, name, rng
        self.run = workspace.runs / name
        self.failures: list[str] = []

    def arguments(self) -> list[str]:
        if (self.run / "run.json").exists():
            return self.workspace.resume(self.name)
        return self.workspace.train(self.name, *SETTINGS)

    def signal(self, number: signal.Signals) -> str:
        """Send a signal at a random moment; return where it came, or nothing if the run was over before."""
        mark = self.workspace.folder / MARK
        mark.unlink(missing_ok=True)
        child = self.workspace.start(*self.arguments(), preexec=mark_loop)
        if self.rng.random() >= EARLY:
            step = self.rng.randint(min(newest(self.run), STEPS - 5), STEPS - 5)
            while child.poll() is None and not (mark.exists() and newest(self.run) >= step - step % 5):
                time.sleep(0.002)
        time.sleep(self.rng.uniform(0, 0.3))
        child.send(number)
        code, _, err = child.wait()
        if code == 0:
            return ""
        if code == 128 + number and "the checkpoint is saved" in err:
            return self.saved(err)
        ended = code == -number or (number == signal.SIGINT and code == 130 and clear(err))
        if not ended or mark.exists():
            place = "inside" if mark.exists() else "outside of"
            self.failures.append(f"{number.name} {place} the loop: exit {code}: {err[-500:]}")
        return "outside of the loop"

    def saved(self, err: str) -> str:
        """Check the message and the checkpoint of a signal within the loop."""
        message = re.search(r"stopped at (?:the last )?step,? ?(\d+); the checkpoint is saved", err)
        steps = {newest(self.run), log(self.run)[-1]["step"], int(message[1]) if message else -1}
        if len(steps) != 1 or not clear(err):
            self.failures.append(f"steps {steps} of checkpoint, log and message: {err[-500:]}")
        return "saved"

    def finish(self) -> None:
        """Let the run end, and compare it with the one that was left alone."""
        code, _, err = self.workspace.run(*self.arguments())
        if code:
            self.failures.append(f"exit {code} at the end: {err[-500:]}")
        elif different := differences(self.run, self.workspace.runs / "whole"):
            self.failures.append(f"differs in {', '.join(different)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rng, moments, kinds, lost, runs = random.Random(chosen.seed), Counter[str](), Counter[str](), 0, 0
    with temporary() as folder:
        workspace = Workspace(Path(folder))
        code, _, err = workspace.run(*workspace.train("whole", *SETTINGS))
        if code:
            raise SystemExit(f"the run without signals failed: {err}")
        while sum(moments.values()) < chosen.count and runs < 2 * chosen.count:
            runs += 1
            target, sent = Target(workspace, f"run-{runs}", rng), 0
            for _ in range(min(SIGNALS_A_RUN, chosen.count - sum(moments.values()))):
                number = SIGNALS[sum(moments.values()) % len(SIGNALS)]
                moment = target.signal(number)
                if not moment:
                    break
                moments[moment] += 1
                kinds[number.name] += 1
                sent += 1
            target.finish()
            lost += sent if target.failures else 0
            print(*(f"{target.name}: {failure}" for failure in target.failures), sep="\n", end="", file=sys.stderr)
    total = sum(moments.values())
    listed = ", ".join(f"{count} {name}" for name, count in sorted(kinds.items()))
    text = (
        f"signals ({listed}): {moments['saved']} in the loop, saved, exit 128 + number; "
        f"{moments['outside of the loop']} outside of it; {runs} runs resumed, every file identical"
    )
    return print_figure(Figure("signals", total - lost, total, text, dict(moments)), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
