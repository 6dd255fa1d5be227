"""The public functions: settings, loading a run, and what happens when a part of a run is damaged."""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import saccade
from saccade import api
from saccade.core import Callback, Split
from saccade.errors import DataError, ModelFileError, ResourceError, UsageError
from saccade.runs import checkpoint, provenance
from saccade.runs import folder as runs
from saccade.tasks import language_model, text_classification

TINY = {"dim": 16, "depth": 1, "heads": 2, "hidden": 16, "max_positions": 8}


@pytest.fixture
def run(tmp_path: Path) -> saccade.Run:
    (tmp_path / "text.txt").write_text("one two three four\n" * 60)
    loop = {"evaluate_every": 2, "keep": 3}
    root = tmp_path / "runs"
    return api.train(tmp_path / "text.txt", steps=8, name="made", root=root, model=TINY, batch_size=4, train=loop)


def edit(run: saccade.Run, **changes: object) -> None:
    path = run.path / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_settings_are_keywords_nested_mappings_and_overrides(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two three four\n" * 60)
    (tmp_path / "valid.txt").write_text("four three two one\n" * 20)
    run = api.train(
        tmp_path / "text.txt",
        steps=2,
        seed=7,
        valid=tmp_path / "valid.txt",
        model={**TINY, "norm": "layer"},
        train={"optim": {"kind": "adamw", "lr": 1e-3}, "patience": 3},
        data={"tokenizer": "characters"},
        batch_size=4,
        overrides=["model.dim=8", "train.keep=1"],
        root=tmp_path / "runs",
    )
    config, loop = run.settings["config"], run.settings["train"]
    assert (config["model"]["dim"], config["model"]["depth"], config["model"]["norm"]) == (8, 1, "layer")
    assert config["data"]["tokenizer"] == "characters"
    assert (config["batch_size"], config["data"]["valid"]) == (4, str(tmp_path / "valid.txt"))
    assert (loop["steps"], loop["seed"], loop["patience"], loop["keep"]) == (2, 7, 3, 1)
    assert (loop["optim"]["kind"], loop["optim"]["lr"]) == ("adamw", 1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": {"dmi": 3}}, r"no setting 'model\.dmi'; did you mean 'model\.dim'\?"),
        ({"model": 3}, r"'model' is a group of settings; name one of them"),
        ({"model": {"dim": "wide"}}, r"model\.dim must be a whole number, but is 'wide'"),
        ({"modl": {"dim": 3}}, r"no setting 'modl\.dim'; did you mean 'model\.dim'\?"),
        ({"steps": 3, "minutes": 2}, r"train\.steps, minutes .* but are 3, 2\.0 and 0\.0"),
        ({"train": {"stepz": 3}}, r"no setting 'train\.stepz'; did you mean 'train\.steps'\?"),
        ({"preset": "smal"}, r"no preset 'smal'; did you mean 'small'\?"),
        ({"task": "languag_model"}, r"no task 'languag_model'; did you mean 'language_model'\?"),
    ],
)
def test_a_wrong_setting_is_refused_and_leaves_no_run(tmp_path: Path, settings: dict, message: str) -> None:
    (tmp_path / "text.txt").write_text("one two three four\n" * 60)
    with pytest.raises(UsageError, match=message):
        api.train(tmp_path / "text.txt", root=tmp_path / "runs", **settings)
    assert not list((tmp_path / "runs").glob("*"))


def test_callbacks_are_told_and_can_stop_the_training(tmp_path: Path) -> None:
    class Stop(Callback):
        steps, evaluations, logs = 0, 0, 0

        def log(self, message: str) -> None:
            self.logs += 1

        def on_step(self, record: dict, progress: float, total: int | None) -> None:
            self.steps += 1
            assert (record["step"], total) == (self.steps, 50)
            if self.steps == 3:
                raise saccade.StopTraining

        def on_evaluation(self, record: dict, sample: str) -> None:
            self.evaluations += 1

    (tmp_path / "text.txt").write_text("one two three four\n" * 60)
    stop = Stop()
    run = api.train(tmp_path / "text.txt", steps=50, model=TINY, batch_size=4, callbacks=[stop], root=tmp_path / "runs")
    assert (stop.steps, stop.evaluations) == (3, 1) and stop.logs > 2
    assert max(record["step"] for record in run.history) == 3
    assert run.metrics["loss"] > 0


def test_the_data_are_loaded_once(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "text.txt").write_text("one two three four\n" * 60)
    loaded: list[Path] = []
    load_data = language_model.Task.load_data

    def counted(self, data, **how):
        loaded.append(data)
        return load_data(self, data, **how)

    monkeypatch.setattr(language_model.Task, "load_data", counted)
    api.train(tmp_path / "text.txt", steps=1, model=TINY, batch_size=4, root=tmp_path / "runs")
    assert loaded == [tmp_path / "text.txt"]


def test_nothing_is_printed_without_a_terminal_unless_asked_for(tmp_path: Path, capfd) -> None:
    (tmp_path / "text.txt").write_text("one two three four\n" * 60)
    same = {"steps": 2, "model": TINY, "batch_size": 4, "root": tmp_path / "runs"}
    api.train(tmp_path / "text.txt", **same)
    assert capfd.readouterr() == ("", "")
    api.train(tmp_path / "text.txt", progress=True, **same)
    shown = capfd.readouterr()
    assert "step 2  valid loss" in shown.err and not shown.out


def test_a_notebook_shows_metrics_and_curves_of_a_run(run: saccade.Run) -> None:
    shown = run._repr_html_()
    assert f"<td>{run.metrics['loss']:,.4f}</td>" in shown
    assert shown.count("<svg") >= 2 and "training loss" in shown and "validation loss" in shown
    assert repr(run).startswith(f"<saccade.Run {run.path}: loss ")


def test_a_run_stands_for_its_folder(run: saccade.Run, tmp_path: Path) -> None:
    for ref in (run, run.path, str(run.path), "made"):
        model = saccade.load(ref, root=tmp_path / "runs")
        assert model.name == "made"
    assert model.evaluate().values == run.metrics


def test_a_card_describes_the_run(run: saccade.Run) -> None:
    card = (run.path / "card.md").read_text()
    assert "# made" in card and "`language_model`" in card and "text.txt" in card
    assert re.search(rf"^\| \*\*loss\*\* +\| {run.metrics['loss']:,.4f}\b", card, re.MULTILINE), card


def test_a_task_that_is_not_built_in_runs_only_if_it_is_named(run: saccade.Run, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger" / "__init__.py").write_text("")
    (tmp_path / "stranger" / "task.py").write_text("from saccade.tasks.language_model import Task\n")
    monkeypatch.syspath_prepend(tmp_path)
    edit(run, task="stranger.task")
    with pytest.raises(ModelFileError, match=r"names the task 'stranger.task'.*would run code.*--task stranger.task"):
        api.load(run)
    assert "stranger" not in sys.modules
    settings = {"model": TINY, "batch_size": 4, "root": tmp_path / "runs", "name": "own"}
    own = api.train(tmp_path / "text.txt", steps=2, task="stranger.task", **settings)
    assert api.load(own, task="stranger.task").task.config.model.dim == 16


def test_unknown_settings_in_a_run_are_refused(run: saccade.Run) -> None:
    edit(run, train={"stepz": 3})
    provenance.record(runs.Run(run.path), "")
    with pytest.raises(ModelFileError, match=r"run\.json: no setting 'train.stepz'; did you mean 'train.steps'\?"):
        api.load(run)


def test_a_damaged_best_checkpoint_is_logged_and_another_one_used(run: saccade.Run) -> None:
    folder = run.path / "checkpoints"
    last = checkpoint.read(checkpoint.at(folder, 8))
    state = replace(last.state, best={**last.state.best, "step": 6})
    checkpoint.save(folder, checkpoint.Checkpoint(9, last.parts, state))
    (checkpoint.at(folder, 6) / "model.safetensors").write_bytes(b"")
    logged: list[str] = []
    assert api.load(run, log=logged.append)
    assert "the best checkpoint is damaged" in logged[0] and "model.safetensors" in logged[0] and "step 9" in logged[0]


def test_a_damaged_run_does_not_hide_the_others(run: saccade.Run, tmp_path: Path) -> None:
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "run.json").write_text("{")
    result = {summary["name"]: summary for summary in api.list_runs(tmp_path / "runs")}
    assert "run.json is damaged" in result["broken"]["error"]
    assert (result["made"]["step"], result["made"]["running"], result["made"]["finished"]) == (8, False, True)
    (run.path / "card.md").unlink()
    assert not {summary["name"]: summary for summary in api.list_runs(tmp_path / "runs")}["made"]["finished"]
    assert result["made"]["best"] == pytest.approx(run.metrics["loss"], rel=0.2)


def test_a_validation_file_is_found_from_anywhere(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "text.txt").write_text("one two three four\n" * 60)
    (tmp_path / "valid.txt").write_text("four three two one\n" * 20)
    monkeypatch.chdir(tmp_path)
    run = api.train("text.txt", steps=2, valid="valid.txt", model=TINY, batch_size=4, root=tmp_path / "runs")
    monkeypatch.chdir("/")
    again = api.resume(run)
    assert again.metrics == run.metrics
    assert run.metrics["tokens"] == len("four three two one\n" * 20) - 1


def test_another_vocabulary_is_noticed(run: saccade.Run) -> None:
    path = run.path / "assets" / "tokenizer.json"
    path.write_text(path.read_text() + " ")
    with pytest.raises(ModelFileError, match=r"assets: tokenizer\.json has changed since the run was trained"):
        api.load(run)


def test_settings_that_keep_the_shapes_are_noticed(run: saccade.Run) -> None:
    config = json.loads((run.path / "run.json").read_text())["config"]
    config["model"]["heads"] = 1
    edit(run, config=config)
    for act in (api.load, api.resume):
        with pytest.raises(ModelFileError, match=r"run\.json holds other settings than the run was started with"):
            act(run)


def test_all_of_another_file_is_evaluated(run: saccade.Run, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("four three two one\n" * 30)
    evaluation = api.load(run).evaluate(tmp_path / "other.txt")
    assert evaluation["tokens"] == len("four three two one\n" * 30) - 1


def test_a_run_does_not_continue_with_other_data(run: saccade.Run, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two three four\n" * 61)
    with pytest.raises(
        DataError, match=r"text\.txt: fingerprint \w+, expected \w+: the data have changed since run 'made'"
    ):
        api.resume(run)
    (tmp_path / "text.txt").write_text("one two three four\n" * 60)
    assert api.resume(run).metrics == run.metrics


def test_nothing_is_scored_on_data_that_have_changed(tmp_path: Path) -> None:
    """The data file changes while the model trains: the score is that of the data it was started with, or none."""
    data, text, other = tmp_path / "text.txt", "one two three four\n" * 60, "four three one owt\n" * 60

    class Change(Callback):
        def on_evaluation(self, record: dict, sample: str) -> None:
            data.write_text(other)

    settings = {"steps": 4, "model": TINY, "batch_size": 4, "root": tmp_path / "runs"}
    data.write_text(text)
    undisturbed = api.train(data, name="a", **settings)
    disturbed = api.train(data, name="b", callbacks=[Change()], **settings)
    assert disturbed.metrics == undisturbed.metrics
    message = r"text\.txt: fingerprint \w+, expected \w+: the data have changed since run 'b' started"
    with pytest.raises(DataError, match=message):
        api.load(disturbed).evaluate()
    with pytest.raises(DataError, match=message):
        api.resume(disturbed)
    assert (
        api.load(disturbed).evaluate(data)["loss"] != undisturbed.metrics["loss"]
    )  # named as what it is, it is scored
    data.write_text(text)
    assert api.load(disturbed).evaluate().values == undisturbed.metrics


def test_an_altered_journal_falls_back_to_a_checkpoint_it_agrees_with(run: saccade.Run) -> None:
    journal, logged = run.path / "metrics.jsonl", Log()
    whole = journal.read_bytes()
    journal.write_bytes(whole[: len(whole) - 40])
    api.resume(run, callbacks=[logged])
    assert "checkpoint of step 8 cannot be used" in logged.text and "metrics.jsonl is shorter than" in logged.text
    assert [record["step"] for record in run.history] == [json.loads(line)["step"] for line in whole.splitlines()]
    journal.write_bytes(b"x" + journal.read_bytes()[1:])
    with pytest.raises(ModelFileError, match=r"none of the 3 checkpoints .*: .*metrics\.jsonl differs from the"):
        api.resume(run)
    journal.unlink()
    with pytest.raises(
        ModelFileError, match=r"none of the 3 checkpoints .*metrics\.jsonl cannot be read: No such file"
    ):
        api.resume(run)


class Log(Callback):
    text = ""

    def log(self, message: str) -> None:
        self.text += message + "\n"


def test_a_run_folder_that_is_deleted_while_it_is_trained_is_not_made_anew(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two three four\n" * 60)

    class Delete(Callback):
        def on_step(self, record: dict, progress: float, total: int | None) -> None:
            if record["step"] == 3:
                shutil.rmtree(tmp_path / "runs" / "gone")

    settings = {"steps": 9, "model": TINY, "batch_size": 4, "train": {"evaluate_every": 2, "save_every": 1}}
    with pytest.raises(ResourceError, match=r"the run folder .*gone was deleted, moved or replaced while the run was"):
        api.train(tmp_path / "text.txt", name="gone", root=tmp_path / "runs", callbacks=[Delete()], **settings)
    assert not (tmp_path / "runs" / "gone").exists()


def test_what_a_kill_around_the_last_prune_left_is_cleared_up(run: saccade.Run) -> None:
    folder = run.path / "checkpoints"
    before = sorted(path.relative_to(run.path) for path in run.path.rglob("*"))
    shutil.copytree(checkpoint.at(folder, 4), checkpoint.at(folder, 2))
    (checkpoint.at(folder, 2) / "manifest.json").unlink()
    shutil.copytree(checkpoint.at(folder, 4), folder / "step-000003-old.tmp")
    for name in ("analysis.json.tmp", "attention/step-00000002.json.tmp"):
        (run.path / name).write_text("{")
    api.resume(run)
    assert sorted(path.relative_to(run.path) for path in run.path.rglob("*")) == before


def test_a_run_without_a_checkpoint_is_refused_with_the_next_step(run: saccade.Run) -> None:
    folder = run.path / "checkpoints"
    for step in checkpoint.steps(folder):
        for file in checkpoint.at(folder, step).iterdir():
            file.unlink()
        checkpoint.at(folder, step).rmdir()
    with pytest.raises(ModelFileError, match="run 'made' has no checkpoint yet; train it with `saccade resume"):
        api.load(run)


def test_a_classifier_is_validated_once_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{'the cat' if n % 2 else 'a dog'} sat {n}\t{'pet' if n % 2 else 'none'}" for n in range(80)]
    (tmp_path / "rows.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    evaluated = []
    evaluate = text_classification.Task.evaluate

    def counted(self: text_classification.Task, split: Split, **how: object) -> object:
        evaluated.append(how.get("quick", False))
        return evaluate(self, split, **how)

    monkeypatch.setattr(text_classification.Task, "evaluate", counted)
    settings = {"model": {"dim": 16, "depth": 1, "heads": 2, "hidden": 16}, "vocabulary_size": 60}
    run = api.train(tmp_path / "rows.tsv", task="text_classification", steps=4, root=tmp_path, **settings)
    assert evaluated and all(evaluated), "the last quick evaluation covered all rows: no second one"
    assert "accuracy" in run.metrics


def test_only_a_built_in_task_with_an_environment_replays_episodes() -> None:
    assert api.has_environment("behaviour_cloning", {"environment": "CartPole-v1"})
    assert not api.has_environment("behaviour_cloning", {"environment": ""})
    assert not api.has_environment("translation", {"environment": "CartPole-v1"})
    assert not api.has_environment("a.module.that.is.not.imported", {"environment": "CartPole-v1"})
