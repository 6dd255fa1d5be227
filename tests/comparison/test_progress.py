"""Progress of a comparison, and the message of a process that crashed."""

import signal

import pytest

from saccade.comparison.process import _crash_message
from saccade.comparison.progress import OverallProgress
from saccade.core import Callback
from saccade.progress import ProgressBar


class Recorder(Callback):
    """Keeps its steps and messages."""

    def __init__(self):
        self.steps, self.messages = [], []

    def log(self, message):
        self.messages.append(message)

    def on_step(self, record, progress, total):
        self.steps.append((record["part"], progress))


def test_a_job_counts_by_its_estimated_time():
    recorder = Recorder()
    overall = OverallProgress(recorder, [10, 10, 5])
    with overall.job(1, "transformer"):
        overall.on_step({"step": 1, "tokens": 5}, 0.5, None)
        overall.log("hello")
    with overall.job(2, "memory"):
        overall.on_step({"step": 1, "tokens": 5}, 1.0, None)
    assert recorder.steps == [("2 of 3, transformer", pytest.approx(0.6)), ("3 of 3, memory", pytest.approx(1.0))]
    assert recorder.messages == ["2 of 3, transformer: hello"]


def test_the_progress_bar_measures_the_speed_of_each_job_by_itself(capsys, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("saccade.progress.time.monotonic", lambda: now[0])
    monkeypatch.setattr(ProgressBar, "SECONDS_PER_LINE", 0.5)
    bar = ProgressBar()
    for part, tokens in (
        ("1 of 2, rnn", 100),
        ("1 of 2, rnn", 100),
        ("2 of 2, transformer", 700),
        ("2 of 2, transformer", 700),
    ):
        now[0] += 1
        record = {"step": 1, "loss": 1.0, "unit": "tokens", "tokens": tokens, "part": part}
        bar.on_step(record, (now[0] - 1000) / 10, None)
    lines = capsys.readouterr().err.splitlines()
    assert "1 of 2, rnn  step 1" in lines[1] and "100 tokens/s" in lines[1]
    assert "2 of 2, transformer  step 1" in lines[3] and "700 tokens/s" in lines[3]
    assert lines[3].endswith("0:06 left")


def test_the_message_of_a_crashed_process(tmp_path):
    log = tmp_path / "part.log"
    log.write_text("".join(f"line {number}\n" for number in range(9)))
    assert _crash_message(log, -signal.SIGKILL) == (
        "its process was killed by SIGKILL, probably because the system ran out of memory"
    )
    assert _crash_message(log, 1) == "its process ended with code 1: line 4 / line 5 / line 6 / line 7 / line 8"
    assert "was killed by SIGABRT: line 4" in _crash_message(log, -signal.SIGABRT)
    log.write_text("")
    assert _crash_message(log, 3).endswith("its log is empty")
