"""Complete comparisons: killed and continued, a model that crashes, and errors before training."""

import errno
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

import saccade
from saccade import api
from saccade.comparison import job
from saccade.comparison.job import FILE, MODELS, Trial, compare
from saccade.comparison.process import Job
from saccade.errors import DataError, ResourceError, UsageError

TINY = ["rnn.dim=16", "rnn.hidden=16", "transformer.dim=16", "transformer.hidden=16", "transformer.depth=1"]
OVERRIDES = [*(f"model.{setting}" for setting in TINY), "model.transformer.decoder_depth=1", "search.beam=1"]
OVERRIDES += ["batch_tokens=400"]
OVERRIDES += ["train.steps=24", "train.save_every=2", "train.evaluate_every=8", "train.device=cpu"]
OVERRIDES += ["data.tokenizer=bpe", "data.vocabulary_size=300"]
EVIL = "<i>dog</i>"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pairs of sentences whose words are reversed."""
    draw, words = random.Random(3), ["red", "blue", "cat", EVIL, "sat", "ran", "the", "old", "new", "far"]
    file = tmp_path_factory.mktemp("data") / "pairs.tsv"
    rows = [draw.choices(words, k=draw.randint(2, 12)) for _ in range(200)]
    file.write_text("".join(f"{' '.join(row)}\t{' '.join(word[::-1] for word in row)}\n" for row in rows))
    return file


def command(data, root, *more):
    here = Path(__file__).parent.parent.parent
    args = [sys.executable, "-m", "saccade", "compare", str(data), "--runs", str(root), *more]
    paths = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    return {"args": args, "env": {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}}


def steps(run):
    """Return the steps of the checkpoints, by name alone."""
    return [int(path.name[5:]) for path in (run / "checkpoints").glob("step-*") if "." not in path.name]


def stop(command, run, number):
    """Start, send a signal while this run is being trained, and wait for the end: code and messages."""
    process = subprocess.Popen(**command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while max(steps(run), default=0) < 4:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    messages = process.communicate()[1]
    return process.returncode, messages


@pytest.fixture(scope="module")
def killed(data, tmp_path_factory):
    """A comparison that was stopped in its first model, killed in its second one, then continued."""
    root = tmp_path_factory.mktemp("runs")
    compared = command(
        data, root, "--models", "rnn,transformer", "--probe-minutes", "0.01", "--name", "both", *OVERRIDES
    )
    folder = root / "both"
    stopped = stop(compared, folder / "rnn", signal.SIGTERM)
    assert not Job("rnn", "train").file(folder).exists()
    stop(compared, folder / "transformer", signal.SIGKILL)
    before = Job("rnn", "train").file(folder).stat()
    assert not Job("transformer", "train").file(folder).exists()
    second = subprocess.run(**compared, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    return {
        "folder": folder,
        "before": before,
        "stopped": stopped,
        "second": second,
        "json": json.loads((folder / "report.json").read_text()),
    }


@pytest.mark.slow
def test_a_stop_signal_saves_and_reports_how_to_continue(killed):
    code, messages = killed["stopped"]
    assert code == 143
    assert "stopped at rnn; continue with the same command and --name both" in messages


@pytest.mark.slow
def test_a_finished_model_is_not_trained_again(killed):
    after = Job("rnn", "train").file(killed["folder"]).stat()
    assert (after.st_ino, after.st_mtime_ns) == (killed["before"].st_ino, killed["before"].st_mtime_ns)
    assert "resuming after step" in killed["second"].stderr


@pytest.mark.slow
def test_an_interrupted_model_equals_an_uninterrupted_one(killed, data, tmp_path):
    overrides = [*OVERRIDES, "model.architecture=transformer"]
    api.train(data, task="translation", name="transformer", root=tmp_path, overrides=overrides, progress=False)

    def losses(folder):
        lines = map(json.loads, (folder / "transformer" / "metrics.jsonl").read_text().splitlines())
        return [(record["step"], record["loss"]) for record in lines if "lr_scale" in record]

    assert losses(killed["folder"]) == losses(tmp_path)


@pytest.mark.slow
def test_all_numbers_are_in_the_json(killed):
    result, scores = killed["json"], {"bleu", "chrf", "exact", "loss"}
    assert [model["name"] for model in result["models"]] == ["rnn", "transformer"]
    for model in result["models"]:
        assert scores <= model["scores"].keys()
        assert model["steps"] == 24 and model["parameters"] > 1000 and model["peak_bytes"] > 100_000_000
        assert 0 < model["target_tokens_per_second"] < model["tokens_per_second"]
        assert [point["step"] for point in model["curve"]] == [8, 16, 24]
        assert sum(row["count"] for row in model["by_length"]["bleu"]) == model["pairs"] == model["scores"]["pairs"]
        assert [row["from"] for row in model["by_length"]["bleu"]][1:] == result["run"]["edges"]
        assert (
            set(model["copy"]["accuracy"])
            == set(model["reverse"]["accuracy"])
            == {*("10", "20", "50", "100", "200", "500", "1000")}
        )
        assert (model["assets"], model["fingerprint"]) == (result["run"]["assets"], result["run"]["fingerprint"])
    rnn, transformer = result["models"]
    assert rnn["sentence"]["alignment"] is None
    alignment = transformer["sentence"]["alignment"]
    assert len(alignment["weights"]) == len(alignment["rows"])
    assert len(alignment["weights"][0]) == len(alignment["columns"])
    assert rnn["sequential"]["grows"] and not transformer["sequential"]["grows"]
    assert [row["tokens"] for row in result["attention_memory"]["rows"]] == [256, 512, 1024, 2048, 4096]
    assert result["summary"] and result["run"]["machine"]["torch"]


@pytest.mark.slow
def test_length_classes_have_the_score_of_evaluate(killed, data):
    """The outputs behind the classes are those of `evaluate`: one class of everything has the same BLEU."""
    from saccade.comparison import measure

    task = api.load(killed["folder"] / "transformer").task
    task.load_data(data)
    rows = measure._translate(task, [], lambda stage, fraction: None)["by_length"]["bleu"]
    assert [row["value"] for row in rows] == [killed["json"]["models"][1]["scores"]["bleu"]]


@pytest.mark.slow
def test_the_page_and_the_table_are_written(killed):
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
    with pytest.raises(UsageError, match=r"models must be \['rnn', 'transformer'\] to continue .* but is \['rnn'\]"):
        compare(data, trial, overrides=OVERRIDES, name="both", root=killed["folder"].parent)


@pytest.mark.slow
def test_other_data_under_the_same_name_are_refused(killed, data):
    text = data.read_text()
    data.write_text(text + "red cat\tder tac\n")
    try:
        with pytest.raises(DataError, match="the data have changed since the comparison 'both' started"):
            compare(
                data,
                Trial(("rnn", "transformer"), probe_minutes=0.01),
                overrides=OVERRIDES,
                name="both",
                root=killed["folder"].parent,
            )
    finally:
        data.write_text(text)


@pytest.mark.slow
def test_a_model_that_crashes_is_reported_and_the_others_are_complete(data, tmp_path):
    more = ["--models", "rnn,transformer", "--probe-minutes", "0", "--name", "x", "model.rnn.hidden=100000000"]
    done = subprocess.run(**command(data, tmp_path, *more, *OVERRIDES[2:], "--json"), capture_output=True, text=True)
    assert done.returncode == 1
    rnn, transformer = json.loads(done.stdout)["models"]
    assert "allocate memory" in rnn["failed"]["train"] and "scores" not in rnn
    assert "scores" in transformer
    assert "could not be trained" in (tmp_path / "x" / "report.html").read_text()


def test_an_unknown_model_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(UsageError, match="no model 'transfomer'; did you mean 'transformer'"):
        Trial(("rnn", "transfomer"))
    done = subprocess.run(
        **command("nowhere.tsv", tmp_path / "runs", "--models", "rnn,transfomer"), capture_output=True, text=True
    )
    assert done.returncode == 2 and "did you mean 'transformer'" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minutes": 0}, "minutes must be above 0, but is 0"),
        ({"minutes": float("nan")}, "minutes must be above 0, but is nan"),
        ({"probe_minutes": -1}, "probe-minutes must be 0 or more, but is -1"),
        ({"models": ()}, "models must name at least one"),
        ({"models": ("rnn", "rnn")}, "each architecture once, but names rnn again"),
    ],
)
def test_an_invalid_trial_is_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        Trial(**settings)


def test_the_probe_takes_two_fifths_of_the_time_with_a_minimum():
    assert Trial(minutes=10).probe == 4
    assert Trial(minutes=0.5).probe == 0.3
    assert Trial(probe_minutes=0).probe == 0


@pytest.mark.parametrize(
    ("text", "overrides", "kind", "message"),
    [
        ("one\ttwo\tthree\nfour\tfive\n", [], DataError, "pairs.tsv:2"),
        ("a\tb\n", ["model.architecture=rnn"], UsageError, "name them with --models"),
        ("a\tb\n", ["model.rnn.hiden=3"], UsageError, "did you mean 'model.rnn.hidden'"),
        ("a b\tb a\n" * 3, [], DataError, "has no pairs"),
    ],
)
def test_errors_are_reported_before_anything_is_trained(tmp_path, text, overrides, kind, message):
    file = tmp_path / "pairs.tsv"
    file.write_text(text)
    with pytest.raises(kind, match=message):
        compare(file, Trial(MODELS), overrides=overrides, root=tmp_path / "runs")
    assert not list((tmp_path / "runs").glob("*")) if (tmp_path / "runs").exists() else True


def test_a_name_of_an_ordinary_run_is_not_taken(tmp_path, data):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("{}")
    with pytest.raises(UsageError, match="run 'mine' exists"):
        compare(data, Trial(("rnn",)), overrides=OVERRIDES, name="mine", root=tmp_path)
    assert not (tmp_path / "mine" / FILE).exists()


def test_the_public_function_checks_its_settings_first(tmp_path, data):
    with pytest.raises(UsageError, match="no model 'transfomer'; did you mean 'transformer'"):
        saccade.compare(data, models=["transfomer"], root=tmp_path)
    with pytest.raises(UsageError, match="name them with --models"):
        saccade.compare(data, model={"architecture": "rnn"}, root=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_no_comparison_that_has_trained_nothing(data, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    root = tmp_path / "runs"
    with monkeypatch.context() as patch:
        patch.setattr(job, "run_job", full)
        with pytest.raises(
            ResourceError, match="No space left on device; nothing was trained and nothing is left: run the"
        ):
            compare(data, Trial(("rnn",), probe_minutes=0), overrides=OVERRIDES, root=root)
    assert list(root.iterdir()) == []

    def full_later(folder, *_):
        (folder / "rnn").mkdir()
        full()

    with monkeypatch.context() as patch:
        patch.setattr(job, "run_job", full_later)
        with pytest.raises(ResourceError, match="continues with the same command and --name pairs-compare-1"):
            compare(data, Trial(("rnn",), probe_minutes=0), overrides=OVERRIDES, root=root)
    assert (root / "pairs-compare-1" / FILE).exists()
