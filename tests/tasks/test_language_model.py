"""Language model: scores against a hand computation, stops, seeds, maps, and what it says about a bad prompt."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from saccade.config import from_json, override
from saccade.core.task import Split
from saccade.data import cache as text
from saccade.errors import DataError, UsageError
from saccade.tasks import language_model
from saccade.tasks.language_model import Task, TextConfig, TextOptions, _overhang

WORDS = ["model.dim=16", "model.depth=2", "model.heads=2", "model.hidden=32", "model.max_positions=16", "batch=4"]
GREEDY = TextOptions(length=40, temperature=0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "text.txt"
    path.write_text("".join(f"line {number * 37 % 101} says é\n" for number in range(200)), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["characters", "bpe"])
def task(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    """An untrained model with lively weights, so that what it says varies."""
    folder = tmp_path_factory.mktemp("assets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        words = [*WORDS, f"data.tokenizer={request.param}", "data.vocabulary=300"]
        config = override(TextConfig(), words)
        Task.prepare(config, data, folder)
        made = Task.open(config, folder)
        made.load_data(data)
        torch.manual_seed(1)
        for parameter in made.model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        made.model.eval()
        yield made


def test_scores_equal_a_hand_computation(task: Task) -> None:
    shard, width = task.shards[Split.VALID], task.config.model.max_positions
    ids = np.asarray(shard.ids).astype(np.int64)
    total = 0.0
    for start in range(0, len(ids) - 1, width):  # every token but the first is predicted once, in windows
        window = torch.from_numpy(ids[start : start + width + 1])
        with torch.no_grad():
            logits = task.model(window[None, :-1])[0]
        total -= float(F.log_softmax(logits, -1)[range(len(window) - 1), window[1:]].sum())
    loss, found = total / (len(ids) - 1), task.evaluate(Split.VALID)
    assert found["tokens"] == len(ids) - 1
    assert found["loss"] == pytest.approx(loss, rel=1e-4)
    assert found["perplexity"] == pytest.approx(math.exp(loss), rel=1e-3)
    written = len(task.tokenizer.decode(ids).encode())
    assert shard.bytes == written
    assert found["bits_per_byte"] == pytest.approx(loss / math.log(2) * len(ids) / written, rel=1e-4)


def test_a_quick_evaluation_is_an_even_sample(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, width = task.shards[Split.VALID], task.config.model.max_positions
    whole = (shard.size - 1) // width
    assert task.evaluate(Split.VALID, quick=True)["tokens"] == whole * width  # small: all but the tail
    monkeypatch.setattr(language_model, "QUICK", 3 * width)
    quick = task.evaluate(Split.VALID, quick=True)
    assert quick["tokens"] <= 3 * width
    assert quick == task.evaluate(Split.VALID, quick=True)
    starts = [group[:, 0].tolist() for _, group in language_model._windows(shard, width, True)]
    assert len(starts[0]) >= 2


def test_reading_a_large_text_is_told_from_beginning_to_end(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("a line of some text that is read\n" * 40_000)
    shares: list[float] = []
    words = {"data": {"tokenizer": "bpe", "vocabulary": 300}}
    (tmp_path / "assets").mkdir()
    Task.prepare(from_json(Task.Config, words), tmp_path, tmp_path / "assets", shares.append)
    assert shares == sorted(shares) and len(set(shares)) >= 4
    assert 0 < shares[0] < 0.5 and shares[-1] == 1


def test_evaluating_does_not_change_the_mode(task: Task) -> None:
    task.model.train()
    try:
        task.evaluate(Split.VALID)
        task.predict("line", GREEDY)
        assert task.model.training
    finally:
        task.model.eval()


def test_a_batch_predicts_the_next_token(task: Task) -> None:
    (part,) = task.batches(Split.TRAIN, 1).at(5)
    ids = task.shards[Split.TRAIN].ids
    for row, start in zip(part.ids, part.starts, strict=True):
        assert row.tolist() == ids[start : start + 17].tolist()
    assert part.count == 4 * 16
    assert part.rows[0] == f"token {part.starts[0]}"
    _, loss = next(task.losses(part))
    logits = task.model(part.ids[:, :-1])
    by_hand = -F.log_softmax(logits, -1).gather(-1, part.ids[:, 1:, None]).mean()
    assert float(loss.detach()) == pytest.approx(float(by_hand.detach()), rel=1e-5)


def test_streaming_equals_predicting(task: Task) -> None:
    for options in (GREEDY, TextOptions(length=60, temperature=1.0, seed=3)):
        assert "".join(task.stream("line 3", options)) == task.predict("line 3", options).output


def test_seeds_are_reproducible(task: Task) -> None:
    options = TextOptions(length=50, temperature=1.0, seed=3)
    first = task.predict("line", options).output
    torch.rand(5)
    assert task.predict("line", options).output == first
    assert task.predict("line", dataclasses.replace(options, seed=4)).output != first


def test_the_length_is_counted_in_tokens(task: Task) -> None:
    for length in (0, 1, 7, 50):  # 50 is more than three contexts
        found = task.predict("line", dataclasses.replace(GREEDY, length=length))
        assert found.scores["tokens"] <= length
        if task.tokenizer.kind == "characters":
            assert found.scores["tokens"] == len(found.output) == length


def test_generation_with_a_cache_equals_generation_without(task: Task) -> None:
    ids = task._prompt("line 3")
    room = task.config.model.max_positions - len(ids)
    for _ in range(room):
        with torch.no_grad():
            ids.append(int(task.model(torch.tensor([ids]))[0, -1].argmax()))
    expected = task.tokenizer.decode(ids[len(task._prompt("line 3")) :])
    assert task.predict("line 3", dataclasses.replace(GREEDY, length=room)).output == expected


def test_it_stops_before_the_stop_text(task: Task) -> None:
    options = TextOptions(length=60, temperature=1.0, seed=2)
    whole = task.predict("line", options).output
    tried = 0
    for begin in range(0, len(whole), 3):
        for size in (1, 2, 4):  # longer than a token: it comes in several pieces
            stop = whole[begin : begin + size]
            if "\ufffd" in stop:  # half a character
                continue
            tried += 1
            found = task.predict("line", dataclasses.replace(options, stop=stop))
            assert found.output == whole[: whole.index(stop)], stop
            assert "".join(task.stream("line", dataclasses.replace(options, stop=stop))) == found.output
    assert tried > 0


def test_a_stop_text_that_never_comes_changes_nothing(task: Task) -> None:
    options = TextOptions(length=60, temperature=1.0, seed=2)
    whole = task.predict("line", options).output
    almost = whole[-3:] + "\x00"  # the end of the text could be its beginning, and must not be swallowed
    assert task.predict("line", dataclasses.replace(options, stop=almost)).output == whole


def test_what_must_wait_for_a_stop_text() -> None:
    assert [_overhang(held, "END") for held in ("xE", "xEN", "EE", "x", "", "xENE")] == [1, 2, 1, 0, 0, 1]
    assert _overhang("anything", "") == 0


@pytest.mark.parametrize("length", [1, 6, 60])
def test_maps_have_words_on_both_axes(task: Task, length: int) -> None:
    found = task.predict("line 3", dataclasses.replace(GREEDY, length=length, maps=True))
    assert [read.name for read in found.maps] == ["decoder.0.self", "decoder.1.self"]
    for read in found.maps:
        heads, queries, keys = read.weights.shape
        assert heads == task.config.model.heads
        assert (read.queries.kind, read.keys.kind) == ("words", "words")
        assert (len(read.queries.labels), len(read.keys.labels)) == (queries, keys)
        torch.testing.assert_close(read.weights.sum(-1), torch.ones(heads, queries), rtol=1e-4, atol=1e-4)
    assert task.predict("line 3", dataclasses.replace(GREEDY, length=length)).output == found.output


def test_map_labels_are_the_tokens_that_were_read(task: Task) -> None:
    prompt = task.tokenizer.pieces(task.tokenizer.encode("line 3"))
    found = task.predict("line 3", TextOptions(length=4, temperature=0, maps=True)).maps[0]
    assert list(found.keys.labels[: len(prompt)]) == prompt
    assert len(found.keys.labels) == len(prompt) + 3  # the last token is made, not read


def test_maps_after_a_stop_text_have_the_right_labels(task: Task) -> None:
    options = TextOptions(length=8, temperature=0)
    whole = task.predict("line", options).output
    found = task.predict("line", dataclasses.replace(options, stop=whole[2:4], maps=True))
    for read in found.maps:
        assert len(read.keys.labels) == read.weights.shape[-1]


def test_no_maps_where_nothing_was_read(task: Task) -> None:
    assert task.predict("line", TextOptions(length=0, maps=True)).maps == ()


def test_an_unknown_character_is_named(task: Task) -> None:
    if task.tokenizer.kind == "characters":
        with pytest.raises(DataError, match=r"character 6 of the text is '€' \(U\+20AC\), expected one seen when"):
            task.predict("line €", GREEDY)
    else:
        assert isinstance(task.predict("line €", GREEDY).output, str)  # bytes know every character


def test_an_empty_prompt_starts_a_text(task: Task) -> None:
    assert task.predict("", GREEDY).output
    assert task.sample() == task.sample()


def test_a_text_too_short_for_the_context_is_refused(task: Task, data: Path) -> None:
    config = override(task.config, ["model.max_positions=5000"])
    long = Task(config, task.tokenizer)
    says = r"text\.txt: the (train|valid) part must have at least 5002 tokens for a context of 5000, but has \d+"
    with pytest.raises(DataError, match=says):
        long.load_data(data)


def test_a_batch_must_divide_into_its_parts() -> None:
    with pytest.raises(UsageError, match="batch must be a multiple of parts, but 4 is not a multiple of 3"):
        override(TextConfig(), ["batch=4", "parts=3"])


def test_parts_hold_the_rows_of_the_whole(task: Task) -> None:
    parted = Task(override(task.config, ["parts=2"]), task.tokenizer)
    parted.shards = task.shards
    whole, parts = task.batches(Split.TRAIN, 1).at(3), parted.batches(Split.TRAIN, 1).at(3)
    assert torch.equal(torch.cat([part.ids for part in parts]), whole[0].ids)
    assert [part.count for part in parts] == [32, 32]


def test_the_characters_of_the_held_back_part_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("abc abc\n" * 60)
    (tmp_path / "held.txt").write_text("xyz xyz\n" * 60)
    config = override(TextConfig(), [*WORDS, f"data.valid={tmp_path / 'held.txt'}"])
    notes = Task.prepare(config, tmp_path / "text.txt", tmp_path)
    made = Task.open(config, tmp_path)
    made.load_data(tmp_path / "text.txt")
    assert any("vocabulary: 8 characters" in note for note in notes)
    assert made.tokenizer.decode(made.shards[Split.VALID].ids) == "xyz xyz\n" * 60
    assert isinstance(made.shards[Split.TRAIN], text.Shard)
