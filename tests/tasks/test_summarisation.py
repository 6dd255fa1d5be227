"""Summarisation: long documents are truncated, summaries end, ROUGE with signatures, and learning."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from saccade import api
from saccade.config import override
from saccade.core import Prediction, Split
from saccade.errors import UsageError
from saccade.metrics import generation
from saccade.tasks import translation
from saccade.tasks.summarisation import SummaryConfig, SummaryOptions, Task
from tests.tasks.untrained import open_untrained

WORDS = ["".join(random.Random(number).choices("aeioubdklmnprst", k=5)) for number in range(400)]
TINY = [
    *[f"model.transformer.{setting}" for setting in ("dim=16", "heads=2", "hidden=24", "depth=1", "decoder_depth=1")],
    *[f"model.decoder.{setting}" for setting in ("dim=16", "heads=2", "hidden=24", "depth=2", "window_size=8")],
]


def documents(count: int = 120, long: int = 0) -> list[tuple[str, str]]:
    """A few sentences, and as their summary the first two words; the first `long` ones have 300 words."""
    draw = random.Random(1)
    rows = [draw.choices(WORDS, k=300 if number < long else draw.randint(12, 30)) for number in range(count)]
    return [(" ".join(row), " ".join(row[:2])) for row in rows]


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    return path


def make(folder: Path, rows: list[tuple[str, str]], *overrides: str) -> tuple[Task, list[str]]:
    """Return an untrained model with large random weights, and the notes on the data."""
    data, assets = write(folder / "pairs.tsv", rows), folder / "assets"
    assets.mkdir()
    config = override(SummaryConfig(), [*TINY, *overrides])
    return open_untrained(Task, config, data, assets, std=0.3)


def predict(task: Task, document: str) -> Prediction:
    (prediction,) = task.predict([{"document": document}], SummaryOptions())
    return prediction


def test_the_defaults_are_those_of_summaries() -> None:
    config, options = SummaryConfig(), SummaryOptions()
    assert (config.data.max_length, config.data.truncate, config.label_smoothing) == (1024, True, 0.1)
    assert (
        (config.search.beam, config.search.no_repeat_ngram_size)
        == (options.beam, options.no_repeat_ngram_size)
        == (4, 3)
    )
    assert Task.summary.startswith("summarise") and Task.inputs[0].name == "document"


def test_long_documents_are_truncated_and_not_skipped(tmp_path: Path) -> None:
    task, notes = make(tmp_path, documents(long=5), "data.max_length=200")
    lengths = [length for part in task.splits.values() for length in part.source.lengths.tolist()]
    assert len(lengths) == 120
    assert sorted(lengths)[-6:].count(200) == 5
    assert "5 sources of more than 200 tokens truncated (first: pairs.tsv:1)" in notes
    max_length = next(line for line in notes if line.startswith("source")).split()[-1]
    assert int(max_length) > 200  # the table is of the data before truncation
    for part in task.splits.values():
        for row in range(len(part.texts)):
            whole = task.tokenizers.source.encode(part.texts[row][0])
            assert part.source[row].tolist() == whole[:200]


def test_a_pair_with_a_long_summary_is_skipped(tmp_path: Path) -> None:
    rows = [*documents(), (" ".join(WORDS[:20]), " ".join(WORDS))]
    task, notes = make(tmp_path, rows, "data.max_length=100")
    assert sum(map(len, task.splits.values())) == 120
    assert "1 pair with a target of more than 100 tokens skipped (first: pairs.tsv:121)" in notes


def test_a_document_to_summarise_is_truncated_as_well(tmp_path: Path) -> None:
    task, _ = make(tmp_path, documents(), "data.max_length=50")
    ids = task.tokenizers.source.encode(" ".join(WORDS))
    assert len(ids) > 50
    shortened = predict(task, task.tokenizers.source.decode(ids[:50]))
    whole = predict(task, " ".join(WORDS))
    assert shortened.scores == pytest.approx(whole.scores)
    assert whole.alignment is not None and whole.alignment.weights.shape[-1] == 50


@pytest.mark.parametrize(("overrides", "maximum"), [([], None), (["max_summary=7"], 7)])
def test_a_summary_is_no_longer_than_those_of_the_data(
    tmp_path: Path, overrides: list[str], maximum: int | None
) -> None:
    task, _ = make(tmp_path, documents(), *overrides)
    lengths = sorted(int(length) for part in task.splits.values() for length in part.target.lengths)
    expected = maximum or lengths[107] * 3 // 2 + 10  # nine in ten of 120
    with torch.no_grad():
        task.model.head.weight[task.tokenizers.special.target_end] = 0  # the end is hardly ever predicted
    ((best, *_),) = task._search([[5] * 40], task.config.search)
    assert len(best.ids) == expected == task.max_summary


def test_no_trigram_is_generated_twice(tmp_path: Path) -> None:
    task, _ = make(tmp_path, documents(), "max_summary=40")
    with torch.no_grad():
        task.model.head.weight[task.tokenizers.special.target_end] = 0
    for hypotheses in task._search([[5] * 40, [9] * 30], task.config.search):
        ids = hypotheses[0].ids
        grams = list(zip(ids, ids[1:], ids[2:], strict=False))
        assert len(ids) == 40 and len(set(grams)) == len(grams)


def test_a_quick_evaluation_is_greedy_and_repeats_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the best checkpoint would be chosen by outputs that no user gets."""
    task, _ = make(tmp_path, documents(60), "max_summary=20")
    used = []
    search = translation.search_targets

    def recorded(*args: Any, **kwargs: Any) -> Any:
        used.append(args[3])
        return search(*args, **kwargs)

    monkeypatch.setattr(translation, "search_targets", recorded)
    task.evaluate(Split.VALID, quick=True)
    task.sample()
    assert [(settings.beam, settings.no_repeat_ngram_size) for settings in used] == [(1, 3), (1, 3)]


def test_scores_are_rouge_of_the_predictions_with_their_signatures(tmp_path: Path) -> None:
    task, _ = make(tmp_path, documents(60), "max_summary=6")
    evaluation = task.evaluate(Split.VALID)
    assert list(evaluation.values) == ["rouge1", "rouge2", "rougeL", "loss", "pairs"]
    assert task.metric.name == "rougeL" and task.metric.higher_is_better
    texts = task.splits[Split.VALID].texts
    predictions = task.predict([{"document": text} for text, _ in texts], SummaryOptions())
    outputs = [prediction.text for prediction in predictions]
    expected = generation.rouge(outputs, [target for _, target in texts])
    for name in ("rouge1", "rouge2", "rougeL"):
        assert evaluation[name] == pytest.approx(expected[name].value)
        assert evaluation.signatures[name] == expected[name].signature
    assert evaluation.signatures["rougeL"].startswith("rouge:F|stem:no|tok:ascii")


def test_the_loss_is_the_mean_over_tokens_however_rows_are_grouped(tmp_path: Path) -> None:
    task, _ = make(tmp_path, documents(60, long=20))
    pairs = task.splits[Split.VALID]
    with torch.no_grad():
        alone = [(task._mean_loss(pairs, np.array([row])), len(pairs.target[row]) + 1) for row in range(len(pairs))]
    mean = sum(loss * count for loss, count in alone) / sum(count for _, count in alone)
    assert task.evaluate(Split.VALID)["loss"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("architecture", ["transformer", "decoder"])
def test_a_run_learns_and_has_an_alignment(tmp_path: Path, architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    draw = random.Random(2)
    rows = [draw.choices(WORDS[:12], k=9) for _ in range(400)]
    data = write(tmp_path / "pairs.tsv", [(" ".join(row), row[0] + " " + row[1]) for row in rows])
    overrides = ["train.device=cpu", "train.steps=120", "train.evaluate_every=120", "batch_tokens=1200"]
    overrides += ["data.tokenizer=words", f"model.architecture={architecture}"]
    shape = ["dim=32", "heads=2", "hidden=48", "depth=2", "dropout=0", "embedding_dropout=0"]
    overrides += [f"model.{architecture}.{setting}" for setting in shape]
    run = api.train(data, task="summarisation", root=tmp_path / "runs", overrides=overrides, progress=False)
    assert run.metrics["rougeL"] > 80
    prediction = api.load(run, device="cpu")(" ".join(rows[0]))
    assert prediction.alignment is not None
    assert prediction.alignment.weights.shape == (1, len(prediction.text.split()), 9)


def test_a_pretrained_translator_cannot_summarise(tmp_path: Path) -> None:
    task, _ = make(tmp_path, documents(60))
    pretrained = task.to_pretrained()
    assert pretrained.task == "summarisation"
    with pytest.raises(UsageError, match="a summarisation cannot run as the task summarisation; leave out --task"):
        Task.from_pretrained(pretrained)
