"""The progress of a whole comparison, and the last words of a process that could not tell what happened."""

import signal

import pytest

from saccade.comparison.process import _last_words
from saccade.comparison.progress import Overall
from saccade.progress import Screen


class Kept:
    """A report that remembers its steps."""

    def __init__(self):
        self.steps, self.said = [], []

    def say(self, message):
        self.said.append(message)

    def advance(self, what, share): ...

    def step(self, record, progress, total):
        self.steps.append((record["doing"], progress))

    def evaluated(self, record, sample): ...


def test_a_part_counts_by_the_time_it_may_take():
    kept = Kept()
    overall = Overall(kept, [10, 10, 5])
    with overall.part(1, "transformer"):
        overall.step({"step": 1, "tokens": 5}, 0.5, None)
        overall.say("hello")
    with overall.part(2, "memory"):
        overall.step({"step": 1, "tokens": 5}, 1.0, None)
    assert kept.steps == [("2 of 3, transformer", pytest.approx(0.6)), ("3 of 3, memory", pytest.approx(1.0))]
    assert kept.said == ["2 of 3, transformer: hello"]


def test_the_screen_counts_the_speed_of_each_part_from_its_own_beginning(capsys, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("saccade.progress.time.monotonic", lambda: now[0])
    monkeypatch.setattr(Screen, "PLAIN_EVERY", 0.5)
    screen = Screen(False)
    for doing, tokens in (
        ("1 of 2, rnn", 100),
        ("1 of 2, rnn", 100),
        ("2 of 2, transformer", 700),
        ("2 of 2, transformer", 700),
    ):
        now[0] += 1
        screen.step({"step": 1, "loss": 1.0, "tokens": tokens, "doing": doing}, (now[0] - 1000) / 10, None)
    lines = capsys.readouterr().err.splitlines()
    assert "1 of 2, rnn  step 1" in lines[1] and "100 tokens/s" in lines[1]
    assert "2 of 2, transformer  step 1" in lines[3] and "700 tokens/s" in lines[3]
    assert lines[3].endswith("0:06 left")


def test_the_last_words_of_a_process(tmp_path):
    log = tmp_path / "part.log"
    log.write_text("".join(f"line {number}\n" for number in range(9)))
    assert _last_words(log, -signal.SIGKILL) == (
        "its process was killed by SIGKILL, as a system does that runs out of memory"
    )
    assert _last_words(log, 1) == "its process ended with code 1: line 4 / line 5 / line 6 / line 7 / line 8"
    assert "was killed by SIGABRT: line 4" in _last_words(log, -signal.SIGABRT)
    log.write_text("")
    assert _last_words(log, 3).endswith("it said nothing")
