"""Language model: scores against a hand computation, generation alone and in batches, attention, and bad prompts."""

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from saccade.config import from_json, override
from saccade.core import Prediction, Role, Split, StreamControl
from saccade.data.shards import Shard
from saccade.errors import DataError, ModelFileError, UsageError
from saccade.nn.probe import watch
from saccade.tasks._language_model import evaluation, generation, memory
from saccade.tasks.language_model import METRICS, Task, TextConfig, TextOptions
from tests.tasks.untrained import in_two_threads, open_untrained

TINY = ["model.dim=16", "model.depth=2", "model.heads=2", "model.hidden=32", "model.max_positions=16", "batch_size=4"]
GREEDY = TextOptions(max_new_tokens=40, temperature=0)


def predict(task: Task, prompt: str, options: TextOptions) -> Prediction:
    (prediction,) = task.predict([{"prompt": prompt}], options)
    return prediction


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "text.txt"
    path.write_text("".join(f"line {number * 37 % 101} says é\n" for number in range(200)), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["characters", "bpe"])
def task(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    """An untrained model with large random weights, so that its outputs vary."""
    folder = tmp_path_factory.mktemp("assets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        settings = [f"data.tokenizer={request.param}", "data.vocabulary_size=300"]
        config = override(TextConfig(), [*TINY, *settings])
        task, _ = open_untrained(Task, config, data, folder, std=0.3)
        yield task


def test_scores_equal_a_hand_computation(task: Task) -> None:
    shard, width = task.shards[Split.VALID], task.config.model.max_positions
    ids = np.asarray(shard.ids).astype(np.int64)
    total = 0.0
    for start in range(0, len(ids) - 1, width):  # every token but the first is predicted once, in windows
        window = torch.from_numpy(ids[start : start + width + 1])
        with torch.no_grad():
            logits = task.model(window[None, :-1])[0]
        total -= float(F.log_softmax(logits, -1)[range(len(window) - 1), window[1:]].sum())
    loss, evaluation = total / (len(ids) - 1), task.evaluate(Split.VALID)
    assert evaluation["tokens"] == len(ids) - 1
    assert evaluation["loss"] == pytest.approx(loss, rel=1e-4)
    assert evaluation["perplexity"] == pytest.approx(math.exp(loss), rel=1e-3)
    size = len(task.tokenizer.decode(ids).encode())
    assert shard.bytes == size
    assert evaluation["bits_per_byte"] == pytest.approx(loss / math.log(2) * len(ids) / size, rel=1e-4)
    assert set(evaluation.values) == set(METRICS) and task.metric == METRICS["loss"]
    assert not any(METRICS[name].higher_is_better for name in ("loss", "perplexity", "bits_per_byte"))


def test_a_quick_evaluation_is_an_even_sample(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, width = task.shards[Split.VALID], task.config.model.max_positions
    small = task.evaluate(Split.VALID, quick=True)
    assert small["tokens"] == shard.size - 1 and small.complete  # all of it
    monkeypatch.setattr(evaluation, "QUICK_TOKENS", 3 * width)
    quick = task.evaluate(Split.VALID, quick=True)
    assert quick["tokens"] <= 3 * width and not quick.complete
    assert quick == task.evaluate(Split.VALID, quick=True)
    starts = [group for _, group in evaluation.evaluation_windows(shard, width, True)]
    assert len(starts[0]) >= 2


def test_progress_of_reading_a_large_text_goes_from_0_to_1(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("a line of some text that is read\n" * 40_000)
    fractions: list[float] = []
    settings = {"data": {"tokenizer": "bpe", "vocabulary_size": 300}}
    (tmp_path / "assets").mkdir()
    Task.prepare(from_json(Task.Config, settings), tmp_path, tmp_path / "assets", progress=fractions.append)
    assert fractions == sorted(fractions) and len(set(fractions)) >= 4
    assert 0 < fractions[0] < 0.5 and fractions[-1] == 1


def test_evaluating_does_not_change_the_mode(task: Task) -> None:
    task.model.train()
    try:
        task.evaluate(Split.VALID)
        predict(task, "line", GREEDY)
        assert task.model.training
    finally:
        task.model.eval()


def test_a_batch_predicts_the_next_token(task: Task) -> None:
    (batch,) = task.source(Split.TRAIN, 1).at(5)
    ids = task.shards[Split.TRAIN].ids
    for row, start in zip(batch.ids, batch.starts, strict=True):
        assert row.tolist() == ids[start : start + 17].tolist()
    assert batch.count == batch.units == 4 * 16
    assert batch.rows[0] == f"token {batch.starts[0]}"
    _, loss = next(task.losses(batch, task.networks()))
    logits = task.model(batch.ids[:, :-1])
    by_hand = -F.log_softmax(logits, -1).gather(-1, batch.ids[:, 1:, None]).mean()
    assert float(loss.detach()) == pytest.approx(float(by_hand.detach()), rel=1e-5)


def test_streaming_equals_predicting(task: Task) -> None:
    for options in (GREEDY, TextOptions(max_new_tokens=60, temperature=1.0, seed=3)):
        assert "".join(map(str, task.stream({"prompt": "line 3"}, options))) == predict(task, "line 3", options).text


def test_seeds_are_reproducible(task: Task) -> None:
    options = TextOptions(max_new_tokens=50, temperature=1.0, seed=3)
    first = predict(task, "line", options).text
    torch.rand(5)
    assert predict(task, "line", options).text == first
    assert predict(task, "line", dataclasses.replace(options, seed=4)).text != first


def test_the_length_is_counted_in_tokens(task: Task) -> None:
    for length in (1, 7, 50):  # 50 is more than three contexts; with 0 the prompt is only read
        found = predict(task, "line", dataclasses.replace(GREEDY, max_new_tokens=length))
        assert found.scores["tokens"] <= length
        if task.tokenizer.kind == "characters":
            assert found.scores["tokens"] == len(found.text) == length


def test_generation_with_a_cache_equals_generation_without(task: Task) -> None:
    ids = task._encode("line 3", GREEDY)
    room = task.config.model.max_positions - len(ids)
    for _ in range(room):
        with torch.no_grad():
            ids.append(int(task.model(torch.tensor([ids]))[0, -1].argmax()))
    expected = task.tokenizer.decode(ids[len(task._encode("line 3", GREEDY)) :])
    assert predict(task, "line 3", dataclasses.replace(GREEDY, max_new_tokens=room)).text == expected


def test_generation_stops_before_the_stop_string(task: Task) -> None:
    options = TextOptions(max_new_tokens=60, temperature=1.0, seed=2)
    whole = predict(task, "line", options).text
    tried = 0
    for begin in range(0, len(whole), 3):
        for size in (1, 2, 4):  # longer than a token: it comes in several pieces
            stop = whole[begin : begin + size]
            if "\ufffd" in stop:  # half a character
                continue
            tried += 1
            found = predict(task, "line", dataclasses.replace(options, stop=stop))
            assert found.text == whole[: whole.index(stop)], stop
            tokens = task.stream({"prompt": "line"}, dataclasses.replace(options, stop=stop))
            assert "".join(map(str, tokens)) == found.text
    assert tried > 0


def test_a_stop_string_that_does_not_occur_changes_nothing(task: Task) -> None:
    options = TextOptions(max_new_tokens=60, temperature=1.0, seed=2)
    whole = predict(task, "line", options).text
    almost = whole[-3:] + "\x00"  # the end of the text could be its beginning, and must not be swallowed
    assert predict(task, "line", dataclasses.replace(options, stop=almost)).text == whole


@pytest.mark.parametrize("count", [1, 6, 60])
def test_maps_have_tokens_on_both_axes(task: Task, count: int) -> None:
    found = predict(task, "line 3", dataclasses.replace(GREEDY, max_new_tokens=count, attention=True))
    assert list(found.attention) == ["decoder.0.self", "decoder.1.self"]
    for one in found.attention.values():
        heads, queries, keys = one.weights.shape
        assert heads == task.config.model.heads
        assert (one.queries.role, one.keys.role) == (Role.TEXT, Role.TEXT)
        assert (len(one.queries), len(one.keys)) == (queries, keys)
        torch.testing.assert_close(one.weights.sum(-1), torch.ones(heads, queries), rtol=1e-4, atol=1e-4)
    assert predict(task, "line 3", dataclasses.replace(GREEDY, max_new_tokens=count)).text == found.text


def test_map_labels_are_the_tokens_that_were_read(task: Task) -> None:
    prompt = task.tokenizer.pieces(task.tokenizer.encode("line 3"))
    found = predict(task, "line 3", TextOptions(max_new_tokens=4, temperature=0, attention=True)).attention[
        "decoder.0.self"
    ]
    assert list(found.keys.labels[: len(prompt)]) == prompt
    assert len(found.keys.labels) == len(prompt) + 3  # the last token is generated, not read


def test_maps_after_a_stop_string_have_the_right_labels(task: Task) -> None:
    options = TextOptions(max_new_tokens=8, temperature=0)
    whole = predict(task, "line", options).text
    found = predict(task, "line", dataclasses.replace(options, stop=whole[2:4], attention=True))
    for one in found.attention.values():
        assert len(one.keys) == one.weights.shape[-1]


def test_without_new_tokens_the_prompt_is_read_alone(task: Task) -> None:
    found = predict(task, "line 3", TextOptions(max_new_tokens=0, attention=True))
    ids = task.tokenizer.encode("line 3")
    generated = predict(task, "line 3", TextOptions(max_new_tokens=1, temperature=0, attention=True))
    assert found.text == "" and found.attention.keys() == generated.attention.keys()
    for name, attention in found.attention.items():
        assert list(attention.queries.labels) == task.tokenizer.pieces(ids)
        torch.testing.assert_close(attention.weights, generated.attention[name].weights)
    with torch.no_grad():
        probs = task.model(torch.tensor([ids]))[0, -1].softmax(-1)
    first, *_ = found.scores  # the most likely next tokens, in order
    assert first == task.tokenizer.pieces([int(probs.argmax())])[0]
    assert list(found.scores.values()) == sorted(found.scores.values(), reverse=True)
    assert found.scores[first] == pytest.approx(float(probs.max()), rel=1e-5)
    assert task.tokenizer.pieces(task.rerun(found).chosen) == [first], "what the explanations explain"
    assert predict(task, "line 3", TextOptions(max_new_tokens=0)).attention == {}


def test_an_unknown_character_is_named(task: Task) -> None:
    if task.tokenizer.kind == "characters":
        with pytest.raises(DataError, match=r"character 6 of the text is '€' \(U\+20AC\), expected one seen when"):
            predict(task, "line €", GREEDY)
    else:
        assert isinstance(predict(task, "line €", GREEDY).text, str)  # bytes know every character


def test_an_empty_prompt_starts_a_text(task: Task) -> None:
    assert predict(task, "", GREEDY).text
    assert task.sample() == task.sample()


def test_a_text_too_short_for_the_context_is_refused(task: Task, data: Path) -> None:
    config = override(task.config, ["model.max_positions=5000"])
    long = Task(config, task.processor)
    says = r"text\.txt: the (train|valid) part must have at least 5002 tokens for a context of 5000, but has \d+"
    with pytest.raises(DataError, match=says):
        long.load_data(data)


def test_a_batch_must_divide_into_its_micro_batches() -> None:
    with pytest.raises(
        UsageError, match="batch_size must be a multiple of micro_batches, but 4 is not a multiple of 3"
    ):
        override(TextConfig(), ["batch_size=4", "micro_batches=3"])


def test_micro_batches_have_the_rows_of_the_batch(task: Task) -> None:
    other = Task(override(task.config, ["micro_batches=2"]), task.processor)
    other.shards = task.shards
    whole, parts = task.source(Split.TRAIN, 1).at(3), other.source(Split.TRAIN, 1).at(3)
    assert torch.equal(torch.cat([part.ids for part in parts]), whole[0].ids)
    assert [part.count for part in parts] == [32, 32]


def test_the_vocabulary_has_the_characters_of_the_validation_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("abc abc\n" * 60)
    (tmp_path / "held.txt").write_text("xyz xyz\n" * 60)
    config = override(TextConfig(), [*TINY, f"data.valid={tmp_path / 'held.txt'}"])
    notes = Task.prepare(config, tmp_path / "text.txt", tmp_path)
    opened = Task.open(config, tmp_path)
    opened.load_data(tmp_path / "text.txt")
    assert any("vocabulary: 8 characters" in note for note in notes)
    assert opened.tokenizer.decode(opened.shards[Split.VALID].ids) == "xyz xyz\n" * 60
    assert isinstance(opened.shards[Split.TRAIN], Shard)


# batches and streams


def test_a_prompt_is_continued_the_same_alone_and_in_a_batch(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = ["line 3", "", "line 41 says", "l", "line 3", "line 99 says é"]
    for options in (GREEDY, TextOptions(max_new_tokens=30, temperature=1.0, seed=3, stop="li")):
        alone = [predict(task, prompt, options) for prompt in prompts]
        for rows in (2, 32):  # rows join while others are being generated, and all at once
            monkeypatch.setattr(generation, "ROWS", rows)
            together = list(task.predict([{"prompt": prompt} for prompt in prompts], options))
            assert [one.inputs["prompt"] for one in together] == prompts
            assert [one.text for one in together] == [one.text for one in alone]
            assert [one.trace for one in together] == [one.trace for one in alone]


def test_many_prompts_are_generated_at_once(task: Task) -> None:
    """One forward call a step for all rows, not one for each."""
    calls = []
    hook = task.model.register_forward_pre_hook(lambda _, args: calls.append(args[0].shape))
    try:
        options = TextOptions(max_new_tokens=8, temperature=0)
        list(task.predict([{"prompt": "line line"}] * 10, options))
    finally:
        hook.remove()
    assert calls.count((10, 1)) == 7 and len(calls) == 10 + 7  # every prompt by itself, then all rows together


def test_two_threads_generate_with_one_model_at_once(task: Task) -> None:
    options = TextOptions(max_new_tokens=20, temperature=1.0, seed=5, attention=True)
    groups = [[{"prompt": "line 3"}, {"prompt": "l"}], [{"prompt": "line 41 says"}, {"prompt": ""}]]
    expected = [[one.text for one in task.predict(group, options)] for group in groups]
    results: dict[int, list[Prediction]] = {}

    def work(number: int) -> None:
        results[number] = list(task.predict(groups[number], options))

    for _ in range(3):
        in_two_threads(work)
        for number, texts in enumerate(expected):
            assert [one.text for one in results[number]] == texts
            for one in results[number]:  # each has its own attention, of its own length
                length = one.trace.end - one.trace.start
                assert {attention.shape[1:] for attention in one.attention.values()} == {(length, length)}


@pytest.mark.parametrize("count", [3, 12, 13, 40])  # from within the context to several times its size
def test_a_stream_has_the_attention_of_the_prediction(task: Task, count: int) -> None:
    options = TextOptions(max_new_tokens=count, temperature=0, attention=True)
    prediction = predict(task, "line 3", options)
    tokens = list(task.stream({"prompt": "line 3"}, options))
    assert "".join(map(str, tokens)) == prediction.text
    assert list(tokens[0].prompt) == task.tokenizer.pieces(task.tokenizer.encode("line 3"))
    for name, weights in tokens[-1].attention.items():
        expected = prediction.attention[name]
        assert weights.shape == expected.shape
        torch.testing.assert_close(weights.rows(0, expected.shape[1]), expected.weights, atol=1e-5, rtol=1e-4)
    assert not any(token.attention for token in task.stream({"prompt": "line 3"}, GREEDY))


def test_a_controlled_stream_begins_with_what_is_given_and_yields_the_end(task: Task) -> None:
    options = TextOptions(max_new_tokens=10, seed=4, attention=True)
    whole = list(task.stream({"prompt": "line 3"}, options, StreamControl()))
    assert "".join(map(str, whole)) == predict(task, "line 3", options).text
    given = [token.id for token in whole[:4]]
    again = list(task.stream({"prompt": "line 3"}, options, StreamControl(given)))
    assert [(token.id, token.text) for token in again] == [(token.id, token.text) for token in whole]
    assert [token.distribution is None for token in again] == [True] * 4 + [False] * (len(again) - 4)
    assert again[-1].attention["decoder.0.self"].shape == whole[-1].attention["decoder.0.self"].shape
    ends, task.eos_ids = task.eos_ids, (whole[2].id,)
    try:
        *_, last = task.stream({"prompt": "line 3"}, options, StreamControl())
        assert (last.id, last.finish) == (whole[2].id, "stop") and last.distribution is not None
    finally:
        task.eos_ids = ends


def test_the_distribution_of_a_token_is_that_it_was_sampled_from(task: Task) -> None:
    options = TextOptions(max_new_tokens=6, temperature=0.5, top_k=4, repetition_penalty=1.3)
    for token in task.stream({"prompt": "line 3"}, options):
        assert token.distribution is not None
        top = token.distribution.next_tokens(options, 8, token.id)
        assert top.kept == 4 and sum(entry.probability for entry in top.candidates) == pytest.approx(1, abs=1e-5)
        (chosen,) = [entry for entry in top.candidates if entry.id == token.id]
        assert chosen.probability > 0 and chosen.token == token.token
        greedy = token.distribution.next_tokens(dataclasses.replace(options, temperature=0), 8)
        assert greedy.kept == 1 and max(entry.probability for entry in greedy.candidates) == 1


def test_a_suspended_stream_records_no_other_call(task: Task) -> None:
    options = TextOptions(max_new_tokens=6, temperature=0, attention=True)
    alone = [token.attention["decoder.0.self"].shape for token in task.stream({"prompt": "line 3"}, options)]
    beside = []
    for token in task.stream({"prompt": "line 3"}, options):
        beside.append(token.attention["decoder.0.self"].shape)
        predict(task, "line 41 says", options)
        with watch(task.model, "decoder.1.self") as maps:
            predict(task, "line", GREEDY)
        assert maps["decoder.1.self"].shape[2] > 0
    assert beside == alone


def test_a_prediction_is_rerun_over_the_tokens_that_were_visible(task: Task) -> None:
    for count in (0, 1, 5, 40):
        prediction = predict(task, "line 3", TextOptions(max_new_tokens=count, temperature=0))
        trace = task.rerun(prediction)
        assert len(trace.chosen) == len(trace.logits) == len(trace.positions)
        assert len(trace.inputs[0]) <= task.config.model.max_positions
        assert trace.logits.argmax(-1).tolist()[-1] == trace.chosen[-1]
        if count == 5:
            assert trace.logits.argmax(-1).tolist() == list(trace.chosen)


def test_the_fingerprint_covers_the_validation_data(task: Task, data: Path, tmp_path: Path) -> None:
    fingerprints = []
    for number, text in enumerate(("line 1 says é\n", "line 1 says é\n", "line 2 says é\n")):
        file = tmp_path / f"valid-{number}.txt"
        file.write_text(text * 20, encoding="utf-8")
        other = Task(override(task.config, [f"data.valid={file}"]), task.processor)
        other.load_data(data)
        fingerprints.append(other.fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_a_language_model_survives_a_round_trip_through_pretrained(task: Task) -> None:
    pretrained = task.to_pretrained()
    assert (pretrained.task, pretrained.config) == ("language_model", task.config.model)
    again = Task.from_pretrained(pretrained)
    assert predict(again, "line", GREEDY).text == predict(task, "line", GREEDY).text
    first = task.tokenizer.encode("l")[0]
    with_bos = dataclasses.replace(pretrained, processor=dataclasses.replace(pretrained.processor, bos_id=first))
    assert Task.from_pretrained(with_bos)._encode("", GREEDY) == [first]
    assert Task.from_pretrained(with_bos)._encode("line", GREEDY) == task.tokenizer.encode("line")
    generated = predict(task, "line", GREEDY).trace.ids[len(task.tokenizer.encode("line")) :]
    ends = dataclasses.replace(pretrained.processor, eos_ids=(first, generated[3]))
    stopped = predict(Task.from_pretrained(dataclasses.replace(pretrained, processor=ends)), "line", GREEDY)
    expected = next(at for at, token in enumerate(generated) if token in ends.eos_ids)
    assert stopped.scores["tokens"] == expected
    other = dataclasses.replace(pretrained, network=torch.nn.Linear(2, 2), task="translation")
    with pytest.raises(UsageError, match="a translation cannot run as the task language_model; leave out --task, or"):
        Task.from_pretrained(other)
    with pytest.raises(UsageError, match="cannot be fine-tuned from a pretrained model yet"):
        Task.prepare(task.config, Path("text.txt"), Path(), base=pretrained)


@pytest.mark.parametrize("dtype", ["float16", "int8", "int4"])
def test_the_cost_of_rounded_weights_is_measured_beside_the_exact_ones(task: Task, dtype: str) -> None:
    exact, rounded = task.evaluate(Split.VALID), task.evaluate_rounded(dtype, Split.VALID)
    (note,) = rounded.notes
    assert note.startswith(f"float32: loss {exact['loss']:.4f}; rounding the weights costs ")
    assert 0 < abs(rounded["loss"] / exact["loss"] - 1) < {"float16": 1e-3, "int8": 0.01, "int4": 0.1}[dtype]


@pytest.mark.parametrize("dtype", ["float16", "int8", "int4"])
@pytest.mark.parametrize("value", ["nan", "-inf"])
def test_weights_that_are_not_finite_are_not_rounded(task: Task, dtype: str, value: str) -> None:
    with changed(task, float(value)) as damaged:
        message = rf"^decoder\.1\.feed\.up: weights must be finite, but one is {value}; get the model again"
        with pytest.raises(ModelFileError, match=message):
            damaged.set_precision(dtype, print)
        with pytest.raises(ModelFileError, match=message):
            damaged.evaluate_rounded(dtype, Split.VALID)


def test_weights_that_are_too_large_for_float16_are_refused_by_name(task: Task) -> None:
    with changed(task, 70_000.0) as changed_task:
        message = r"^decoder\.1\.feed\.up: weights must be at most 65504 for float16, but one is 7e\+04; choose another"
        with pytest.raises(UsageError, match=message):
            changed_task.set_precision("float16", print)


@contextmanager
def changed(task: Task, value: float) -> Iterator[Task]:
    """A task one weight of which has another value."""
    weight = task.model.decoder.get_submodule("1.feed.up").weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight[1, 2] = value
    yield task
    with torch.no_grad():
        weight.copy_(before)


def test_more_rows_than_fit_into_memory_are_refused(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    config = task.config.model
    monkeypatch.setattr(memory, "machine_bytes", lambda: 10 * memory.row_bytes(config, config.max_positions))
    assert task.engine(6).rows == task.engine().rows == 6
    with pytest.raises(UsageError, match=r"^rows must be at most 6 for a context of .* tokens, but are 7: their cache"):
        task.engine(7)


def test_guesses_do_not_change_a_text(task: Task) -> None:
    options = {"max_new_tokens": 40, "temperature": 0.0}
    plain = predict(task, "line line line", TextOptions(**options))
    assert predict(task, "line line line", TextOptions(**options, lookup=6)).text == plain.text
    with pytest.raises(ValueError, match="lookup must be from 0 to 64, but is 65"):
        TextOptions(lookup=65)
