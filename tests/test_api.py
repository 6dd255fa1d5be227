"""The api: what a run may do when it is loaded, and what is done when a part of it is damaged."""

import json
import sys
from pathlib import Path

import pytest

from saccade import api
from saccade.errors import DataError, ModelFileError
from saccade.runs import checkpoint

TINY = ["model.dim=16", "model.depth=1", "model.heads=2", "model.hidden=16", "model.max_positions=8", "batch=4"]


@pytest.fixture
def trained(tmp_path: Path) -> api.Trained:
    (tmp_path / "text.txt").write_text("one two three four\n" * 60)
    words = [*TINY, "train.steps=8", "train.evaluate_every=2", "train.keep=3"]
    return api.train(tmp_path / "text.txt", words, name="made", root=tmp_path / "runs")


def edit(trained: api.Trained, **changes: object) -> None:
    path = trained.run.folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_card_says_what_the_run_is(trained: api.Trained) -> None:
    card = (trained.run.folder / "card.md").read_text()
    assert "# made" in card and "`language_model`" in card and "text.txt" in card
    assert f"| loss | {trained.scores['loss']:,.4f} |" in card


def test_a_task_that_is_not_built_in_runs_only_if_it_is_named(
    trained: api.Trained, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger" / "__init__.py").write_text("")
    (tmp_path / "stranger" / "task.py").write_text("from saccade.tasks.language_model import Task\n")
    monkeypatch.syspath_prepend(tmp_path)
    edit(trained, task="stranger.task")
    with pytest.raises(ModelFileError, match=r"names the task 'stranger.task'.*would run code.*--task stranger.task"):
        api.load(trained.run.folder)
    assert "stranger" not in sys.modules
    assert api.load(trained.run.folder, task="stranger.task").config.model.dim == 16


def test_unknown_settings_in_a_run_are_refused(trained: api.Trained) -> None:
    edit(trained, train={"stepz": 3})
    with pytest.raises(ModelFileError, match=r"run\.json: no setting 'train.stepz'; did you mean 'train.steps'\?"):
        api.load(trained.run.folder)


def test_a_damaged_best_checkpoint_is_said_and_another_one_used(trained: api.Trained) -> None:
    last = checkpoint.read(checkpoint.at(trained.run.checkpoints, 8))
    state = {**last.state, "best": {**last.state["best"], "step": 6}}
    checkpoint.save(trained.run.checkpoints, checkpoint.Checkpoint(9, last.parts, state))
    (checkpoint.at(trained.run.checkpoints, 6) / "model.safetensors").write_bytes(b"")
    said: list[str] = []
    assert api.load(trained.run.folder, say=said.append)
    assert "the best checkpoint is damaged" in said[0] and "model.safetensors" in said[0] and "step 9" in said[0]


def test_a_damaged_run_does_not_hide_the_others(trained: api.Trained, tmp_path: Path) -> None:
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "run.json").write_text("{")
    found = {run["name"]: run for run in api.list_runs(tmp_path / "runs")}
    assert "run.json is damaged" in found["broken"]["error"]
    assert (found["made"]["step"], found["made"]["running"], found["made"]["finished"]) == (8, False, True)
    (trained.run.folder / "card.md").unlink()
    assert not {run["name"]: run for run in api.list_runs(tmp_path / "runs")}["made"]["finished"]
    assert found["made"]["best"] == pytest.approx(trained.scores["loss"], rel=0.2)


def test_a_validation_file_is_found_from_anywhere(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "text.txt").write_text("one two three four\n" * 60)
    (tmp_path / "held.txt").write_text("four three two one\n" * 20)
    monkeypatch.chdir(tmp_path)
    made = api.train("text.txt", [*TINY, "train.steps=2", "data.valid=held.txt"], root=tmp_path / "runs")
    monkeypatch.chdir("/")
    again = api.resume(made.run.folder)
    assert again.scores == made.scores
    assert made.scores["tokens"] == len("four three two one\n" * 20) - 1


def test_another_vocabulary_is_noticed(trained: api.Trained) -> None:
    path = trained.run.assets / "tokenizer.json"
    path.write_text(path.read_text() + " ")
    with pytest.raises(ModelFileError, match=r"assets: tokenizer\.json has changed since the run was trained"):
        api.load(trained.run.folder)


def test_settings_that_keep_the_shapes_are_noticed(trained: api.Trained) -> None:
    config = json.loads((trained.run.folder / "run.json").read_text())["config"]
    config["model"]["heads"] = 1
    edit(trained, config=config)
    for act in (api.load, api.resume):
        with pytest.raises(ModelFileError, match=r"was made with other settings than run\.json holds now"):
            act(trained.run.folder)


def test_all_of_another_file_is_scored(trained: api.Trained, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("four three two one\n" * 30)
    scores = api.evaluate(api.load(trained.run.folder), tmp_path / "other.txt", whole=True)
    assert scores["tokens"] == len("four three two one\n" * 30) - 1


def test_a_run_does_not_go_on_with_other_data(trained: api.Trained, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two three four\n" * 61)
    with pytest.raises(
        DataError, match=r"text\.txt: fingerprint \w+, expected \w+: the data have changed since run 'made'"
    ):
        api.resume(trained.run.folder)
    (tmp_path / "text.txt").write_text("one two three four\n" * 60)
    assert api.resume(trained.run.folder).scores == trained.scores


def test_a_run_without_a_checkpoint_says_so(trained: api.Trained) -> None:
    for step in checkpoint.steps(trained.run.checkpoints):
        for file in checkpoint.at(trained.run.checkpoints, step).iterdir():
            file.unlink()
        checkpoint.at(trained.run.checkpoints, step).rmdir()
    with pytest.raises(ModelFileError, match="run 'made' has no checkpoint yet; train it with `saccade resume"):
        api.load(trained.run.folder)
