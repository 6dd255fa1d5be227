"""A whole comparison: killed in the middle and gone on with, a model that crashes, and mistakes before it begins."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from saccade import api
from saccade.comparison.job import FILE, MODELS, Trial, compare
from saccade.comparison.process import Part
from saccade.errors import DataError, UsageError

TINY = ["rnn.dim=16", "rnn.state=16", "transformer.dim=16", "transformer.hidden=16", "transformer.depth=1"]
WORDS = [*(f"model.{word}" for word in TINY), "model.transformer.decoder_depth=1", "search.beam=1", "tokens=400"]
WORDS += ["train.steps=24", "train.save_every=2", "train.evaluate_every=8", "train.device=cpu"]
WORDS += ["data.tokenizer=bpe", "data.vocabulary=300"]
EVIL = "<i>dog</i>"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pairs of sentences whose words are turned round."""
    chance, words = random.Random(3), ["red", "blue", "cat", EVIL, "sat", "ran", "the", "old", "new", "far"]
    file = tmp_path_factory.mktemp("data") / "pairs.tsv"
    rows = [chance.choices(words, k=chance.randint(2, 12)) for _ in range(200)]
    file.write_text("".join(f"{' '.join(row)}\t{' '.join(word[::-1] for word in row)}\n" for row in rows))
    return file


def command(data, root, *more):
    here = Path(__file__).parent.parent.parent
    words = [sys.executable, "-m", "saccade", "compare", str(data), "--runs", str(root), *more]
    paths = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    return {"args": words, "env": {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}}


def steps(run):
    """The steps whose checkpoints are there, by name alone."""
    return [int(path.name[5:]) for path in (run / "checkpoints").glob("step-*") if "." not in path.name]


def stop(words, run, number):
    """Begin, send a signal while this run is being trained, and wait for the end: code and messages."""
    begun = subprocess.Popen(**words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while max(steps(run), default=0) < 4:
        assert begun.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    begun.send_signal(number)
    told = begun.communicate()[1]
    return begun.returncode, told


@pytest.fixture(scope="module")
def killed(data, tmp_path_factory):
    """A comparison that was stopped in its first model, killed in its second one, then gone on with."""
    root = tmp_path_factory.mktemp("runs")
    words = command(data, root, "--models", "rnn,transformer", "--probe-minutes", "0.01", "--name", "both", *WORDS)
    folder = root / "both"
    stopped = stop(words, folder / "rnn", signal.SIGTERM)
    assert not Part("rnn", "train").file(folder).exists()
    stop(words, folder / "transformer", signal.SIGKILL)
    before = Part("rnn", "train").file(folder).stat()
    assert not Part("transformer", "train").file(folder).exists()
    second = subprocess.run(**words, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    return {
        "folder": folder,
        "before": before,
        "stopped": stopped,
        "second": second,
        "json": json.loads((folder / "report.json").read_text()),
    }


@pytest.mark.slow
def test_a_signal_to_stop_saves_and_says_how_to_go_on(killed):
    code, told = killed["stopped"]
    assert code == 143
    assert "stopped at rnn; the same command with --name both goes on" in told


@pytest.mark.slow
def test_a_finished_model_is_not_trained_again(killed):
    after = Part("rnn", "train").file(killed["folder"]).stat()
    assert (after.st_ino, after.st_mtime_ns) == (killed["before"].st_ino, killed["before"].st_mtime_ns)
    assert "going on after step" in killed["second"].stderr


@pytest.mark.slow
def test_the_interrupted_model_ends_as_if_nothing_had_happened(killed, data, tmp_path):
    words = [*WORDS, "model.architecture=transformer"]
    api.train(data, words, task="translation", name="transformer", root=tmp_path)

    def losses(folder):
        lines = map(json.loads, (folder / "transformer" / "metrics.jsonl").read_text().splitlines())
        return [(record["step"], record["loss"]) for record in lines if "tokens" in record]

    assert losses(killed["folder"]) == losses(tmp_path)


@pytest.mark.slow
def test_all_numbers_are_in_the_json(killed):
    found, scores = killed["json"], {"bleu", "chrf", "exact", "loss"}
    assert [model["name"] for model in found["models"]] == ["rnn", "transformer"]
    for model in found["models"]:
        assert scores <= model["scores"].keys()
        assert model["steps"] == 24 and model["parameters"] > 1000 and model["peak_bytes"] > 100_000_000
        assert 0 < model["target_tokens_per_second"] < model["tokens_per_second"]
        assert [one["step"] for one in model["curve"]] == [8, 16, 24]
        assert sum(row["count"] for row in model["by_length"]["bleu"]) == model["pairs"] == model["scores"]["pairs"]
        assert [row["from"] for row in model["by_length"]["bleu"]][1:] == found["run"]["edges"]
        assert (
            set(model["copy"]["accuracy"])
            == set(model["reverse"]["accuracy"])
            == {*("10", "20", "50", "100", "200", "500", "1000")}
        )
        assert (model["assets"], model["fingerprint"]) == (found["run"]["assets"], found["run"]["fingerprint"])
    rnn, transformer = found["models"]
    assert rnn["sentence"]["alignment"] is None
    seen = transformer["sentence"]["alignment"]
    assert len(seen["weights"]) == len(seen["rows"]) and len(seen["weights"][0]) == len(seen["columns"])
    assert rnn["sequential"]["grows"] and not transformer["sequential"]["grows"]
    assert [row["tokens"] for row in found["attention_memory"]["rows"]] == [256, 512, 1024, 2048, 4096]
    assert found["summary"] and found["run"]["machine"]["torch"]


@pytest.mark.slow
def test_classes_of_lengths_have_the_score_that_evaluate_gives(killed, data):
    """The outputs behind the classes are those of `evaluate`: one class of everything has the same BLEU."""
    from saccade.comparison import measure

    opened = api.load(killed["folder"] / "transformer")
    opened.load_data(data)
    found = measure._translated(opened, [], lambda what, share: None)["by_length"]["bleu"]
    assert [row["value"] for row in found] == [killed["json"]["models"][1]["scores"]["bleu"]]


@pytest.mark.slow
def test_the_page_and_the_table_are_there(killed):
    text = (killed["folder"] / "report.html").read_text()
    assert text.count("<section") == 9
    assert EVIL not in text
    lines = killed["second"].stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["model", "rnn", "transformer"]
    assert f"report: {killed['folder'] / 'report.html'}" in killed["second"].stderr
    assert re.search(r"\d of 7, transformer", killed["second"].stderr)


@pytest.mark.slow
def test_other_settings_under_the_same_name_are_refused(killed, data):
    trial = Trial(("rnn",), probe_minutes=0.01)
    with pytest.raises(UsageError, match=r"models must be \['rnn', 'transformer'\] to go on .* but is \['rnn'\]"):
        compare(data, WORDS, trial, name="both", root=killed["folder"].parent)


@pytest.mark.slow
def test_other_data_under_the_same_name_are_refused(killed, data):
    text = data.read_text()
    data.write_text(text + "red cat\tder tac\n")
    try:
        with pytest.raises(DataError, match="the data have changed since the comparison 'both' began"):
            compare(
                data,
                WORDS,
                Trial(("rnn", "transformer"), probe_minutes=0.01),
                name="both",
                root=killed["folder"].parent,
            )
    finally:
        data.write_text(text)


@pytest.mark.slow
def test_a_model_that_crashes_is_told_and_the_others_are_there(data, tmp_path):
    more = ["--models", "rnn,transformer", "--probe-minutes", "0", "--name", "x", "model.rnn.state=100000000"]
    done = subprocess.run(**command(data, tmp_path, *more, *WORDS[3:], "--json"), capture_output=True, text=True)
    assert done.returncode == 1
    rnn, transformer = json.loads(done.stdout)["models"]
    assert "allocate memory" in rnn["failed"]["train"] and "scores" not in rnn
    assert "scores" in transformer
    assert "could not be trained" in (tmp_path / "x" / "report.html").read_text()


def test_an_unknown_model_is_told_before_anything_starts(tmp_path):
    with pytest.raises(UsageError, match="no model 'transfomer'; did you mean 'transformer'"):
        Trial(("rnn", "transfomer"))
    done = subprocess.run(
        **command("nowhere.tsv", tmp_path / "runs", "--models", "rnn,transfomer"), capture_output=True, text=True
    )
    assert done.returncode == 2 and "did you mean 'transformer'" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"minutes": 0}, "minutes must be above 0, but is 0"),
        ({"minutes": float("nan")}, "minutes must be above 0, but is nan"),
        ({"probe_minutes": -1}, "probe-minutes must be 0 or more, but is -1"),
        ({"models": ()}, "models must name at least one"),
        ({"models": ("rnn", "rnn")}, "each architecture once, but names rnn again"),
    ],
)
def test_a_trial_that_makes_no_sense_is_refused(given, told):
    with pytest.raises(UsageError, match=told):
        Trial(**given)


def test_the_probe_takes_a_fifth_of_the_time_but_not_too_little():
    assert Trial(minutes=10).probe == 4
    assert Trial(minutes=0.5).probe == 0.3
    assert Trial(probe_minutes=0).probe == 0


@pytest.mark.parametrize(
    ("text", "words", "kind", "told"),
    [
        ("one\ttwo\tthree\nfour\tfive\n", [], DataError, "pairs.tsv:2"),
        ("a\tb\n", ["model.architecture=rnn"], UsageError, "name them with --models"),
        ("a\tb\n", ["model.rnn.stat=3"], UsageError, "did you mean 'model.rnn.state'"),
        ("a b\tb a\n" * 3, [], DataError, "has no pairs"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(tmp_path, text, words, kind, told):
    file = tmp_path / "pairs.tsv"
    file.write_text(text)
    with pytest.raises(kind, match=told):
        compare(file, words, Trial(MODELS), root=tmp_path / "runs")
    assert not list((tmp_path / "runs").glob("*")) if (tmp_path / "runs").exists() else True


def test_a_name_of_an_ordinary_run_is_not_taken(tmp_path, data):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("{}")
    with pytest.raises(UsageError, match="run 'mine' exists"):
        compare(data, WORDS, Trial(("rnn",)), name="mine", root=tmp_path)
    assert not (tmp_path / "mine" / FILE).exists()
