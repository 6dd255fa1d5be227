"""Summarisation: long documents are cut and not lost, summaries end, ROUGE with signatures, and every architecture."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade import api
from saccade.config import override
from saccade.core.task import Split
from saccade.metrics import generation
from saccade.tasks.summarisation import SummaryConfig, SummaryOptions, Task

WORDS = ["".join(random.Random(number).choices("aeioubdklmnprst", k=5)) for number in range(400)]
TINY = [
    *[f"model.transformer.{word}" for word in ("dim=16", "heads=2", "hidden=24", "depth=1", "decoder_depth=1")],
    *[f"model.decoder.{word}" for word in ("dim=16", "heads=2", "hidden=24", "depth=2", "near=8")],
]


def documents(count: int = 120, long: int = 0) -> list[tuple[str, str]]:
    """A few sentences, and as their summary the first two words; the first `long` ones have 300 words."""
    chance = random.Random(1)
    rows = [chance.choices(WORDS, k=300 if number < long else chance.randint(12, 30)) for number in range(count)]
    return [(" ".join(row), " ".join(row[:2])) for row in rows]


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    return path


def made(folder: Path, rows: list[tuple[str, str]], *words: str) -> tuple[Task, list[str]]:
    """An untrained summariser with lively weights, and what it said about the data."""
    data, assets = write(folder / "pairs.tsv", rows), folder / "assets"
    assets.mkdir()
    config = override(SummaryConfig(), [*TINY, *words])
    Task.prepare(config, data, assets)
    task = Task.open(config, assets)
    said = task.load_data(data)
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.normal_(std=0.3)
    return task, said


def test_the_defaults_are_those_of_summaries() -> None:
    config, options = SummaryConfig(), SummaryOptions()
    assert (config.data.max_length, config.data.cut, config.smoothing) == (1024, True, 0.1)
    assert (
        (config.search.beam, config.search.no_repeat_ngram_size)
        == (options.beam, options.no_repeat_ngram_size)
        == (4, 3)
    )
    assert Task.summary.startswith("learn from documents")


def test_long_documents_are_cut_and_not_left_out(tmp_path: Path) -> None:
    task, said = made(tmp_path, documents(long=5), "data.max_length=200")
    lengths = [length for part in task.parts.values() for length in part.source.lengths.tolist()]
    assert len(lengths) == 120
    assert sorted(lengths)[-6:].count(200) == 5
    assert "5 sources of more than 200 tokens cut there (first: pairs.tsv:1)" in said
    max_length = next(line for line in said if line.startswith("source")).split()[-1]
    assert int(max_length) > 200  # the table shows what there was
    for split in task.parts:
        part = task.parts[split]
        for row in range(len(part.texts)):
            whole = task.reader.source.encode(part.texts[row][0])
            assert part.source[row].tolist() == whole[:200]


def test_a_summary_that_is_too_long_leaves_its_pair_out(tmp_path: Path) -> None:
    rows = [*documents(), (" ".join(WORDS[:20]), " ".join(WORDS))]
    task, said = made(tmp_path, rows, "data.max_length=100")
    assert sum(map(len, task.parts.values())) == 120
    assert "1 pair with a target of more than 100 tokens left out (first: pairs.tsv:121)" in said


def test_a_document_to_predict_is_cut_as_well(tmp_path: Path) -> None:
    task, _ = made(tmp_path, documents(), "data.max_length=50")
    ids = task.reader.source.encode(" ".join(WORDS))
    assert len(ids) > 50
    shortened = task.predict(task.reader.source.decode(ids[:50]), SummaryOptions())
    whole = task.predict(" ".join(WORDS), SummaryOptions())
    assert shortened.scores == pytest.approx(whole.scores)
    assert whole.alignment is not None and whole.alignment.weights.shape[-1] == 50


@pytest.mark.parametrize(("words", "most"), [([], None), (["summary=7"], 7)])
def test_a_summary_is_no_longer_than_those_of_the_data(tmp_path: Path, words: list[str], most: int | None) -> None:
    task, _ = made(tmp_path, documents(), *words)
    lengths = sorted(int(length) for part in task.parts.values() for length in part.target.lengths)
    expected = most or lengths[107] * 3 // 2 + 10  # nine in ten of 120
    with torch.no_grad():
        task.model.head.weight[task.marks[2]] = 0  # the end hardly ever comes
    found = task._search([[5] * 40], task.config.search)
    assert len(found[0][0].ids) == expected == task.room


def test_no_three_tokens_are_written_twice(tmp_path: Path) -> None:
    task, _ = made(tmp_path, documents(), "summary=40")
    with torch.no_grad():
        task.model.head.weight[task.marks[2]] = 0
    for hypotheses in task._search([[5] * 40, [9] * 30], task.config.search):
        ids = hypotheses[0].ids
        grams = list(zip(ids, ids[1:], ids[2:], strict=False))
        assert len(ids) == 40 and len(set(grams)) == len(grams)


def test_a_quick_evaluation_is_greedy_and_repeats_nothing_either(tmp_path: Path) -> None:
    """Else a run would choose its best checkpoint by outputs that nobody gets."""
    task, _ = made(tmp_path, documents(60), "summary=20")
    asked = []
    found = task._search
    task._search = lambda sources, settings, **rest: asked.append(settings) or found(sources, settings, **rest)  # type: ignore[method-assign]
    task.evaluate(Split.VALID, quick=True)
    task.sample()
    assert [(one.beam, one.no_repeat_ngram_size) for one in asked] == [(1, 3), (1, 3)]


def test_scores_are_rouge_of_what_is_predicted_with_their_signatures(tmp_path: Path) -> None:
    task, _ = made(tmp_path, documents(60), "summary=6")
    scores = task.evaluate(Split.VALID)
    assert list(scores) == ["rouge1", "rouge2", "rougeL", "loss", "pairs"]
    assert task.score == "rougeL"
    texts = task.parts[Split.VALID].texts
    outputs = [prediction.output for prediction in task.predict_all([text for text, _ in texts], SummaryOptions())]
    expected = generation.rouge(outputs, [target for _, target in texts])
    for name in ("rouge1", "rouge2", "rougeL"):
        assert scores[name] == pytest.approx(expected[name].value)
        assert task.explained[name] == expected[name].signature
    assert task.explained["rougeL"].startswith("rouge:F|stem:no|tok:ascii")


def test_the_loss_is_the_mean_over_tokens_however_rows_are_grouped(tmp_path: Path) -> None:
    task, _ = made(tmp_path, documents(60, long=20))
    pairs = task.parts[Split.VALID]
    with torch.no_grad():
        alone = [(task._valid_loss(pairs, np.array([row])), len(pairs.target[row]) + 1) for row in range(len(pairs))]
    mean = sum(loss * count for loss, count in alone) / sum(count for _, count in alone)
    assert task.evaluate(Split.VALID)["loss"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("architecture", ["transformer", "decoder"])
def test_a_run_learns_and_shows_where_it_looked(
    tmp_path: Path, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    chance = random.Random(2)
    rows = [chance.choices(WORDS[:12], k=9) for _ in range(400)]
    data = write(tmp_path / "pairs.tsv", [(" ".join(row), row[0] + " " + row[1]) for row in rows])
    words = ["train.device=cpu", "train.steps=120", "train.evaluate_every=120", "tokens=1200", "data.tokenizer=words"]
    shape = ["dim=32", "heads=2", "hidden=48", "depth=2", "dropout=0", "embedding_dropout=0"]
    words += [f"model.{architecture}.{word}" for word in shape]
    trained = api.train(
        data, [*words, f"model.architecture={architecture}"], task="summarisation", name="a", root=tmp_path / "runs"
    )
    assert trained.scores["rougeL"] > 80
    task = api.load(tmp_path / "runs" / "a", device="cpu")
    seen = api.predict(task, " ".join(rows[0]))
    assert seen.alignment is not None
    assert seen.alignment.weights.shape == (1, len(seen.output.split()), 9)
