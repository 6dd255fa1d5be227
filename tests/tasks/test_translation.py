"""Translation: teacher forcing and search, attention with tokens on its axes, streaming, scores, and learning."""

import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from saccade import api
from saccade.config import override
from saccade.core import Prediction, Role, Split
from saccade.decode.search import Hypothesis
from saccade.errors import DataError, ModelFileError, UsageError
from saccade.models.seq2seq.interface import Seq2SeqLoss
from saccade.nn.probe import watch
from saccade.tasks import guess_task, translation
from saccade.tasks.translation import METRICS, Task, TranslationConfig, TranslationOptions
from tests.tasks.untrained import in_two_threads, open_untrained

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SMALL = ["dim=16", "heads=2", "hidden=24", "depth=2", "decoder_depth=2"]
TINY = {
    "rnn": ["model.rnn.dim=8", "model.rnn.hidden=12"],
    "rnn+attention": ["model.rnn.dim=8", "model.rnn.hidden=12"],
    "convolution": ["model.convolution.dim=8", "model.convolution.depth=2", "model.convolution.decoder_depth=2"],
    "transformer": [f"model.transformer.{setting}" for setting in SMALL],
    "universal": [f"model.universal.{setting}" for setting in SMALL],
}
SEARCH = TranslationOptions(beam=3)


def digits(count: int = 400) -> list[tuple[str, str]]:
    """A number, and its digits in words, the last one first."""
    draw = random.Random(1)
    numbers = {"".join(draw.choices("0123456789", k=draw.randint(2, 4))): None for _ in range(2 * count)}
    chosen = list(numbers)[:count]
    return [(number, " ".join(NAMES[int(digit)] for digit in reversed(number))) for number in chosen]


def sentences(count: int = 200) -> list[tuple[str, str]]:
    draw = random.Random(2)
    words = ["".join(draw.choices("aeioubdklmnprst", k=draw.randint(2, 8))) for _ in range(800)]
    rows = [draw.choices(words, k=draw.randint(2, 6)) for _ in range(count)]
    return [(" ".join(row), " ".join(f"{word}en" for word in reversed(row))) for row in rows]


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    return path


def make(folder: Path, rows: list[tuple[str, str]], *overrides: str) -> Task:
    """Return an untrained model with large random weights, so that its outputs vary."""
    data, assets = write(folder / "pairs.tsv", rows), folder / "assets"
    assets.mkdir(exist_ok=True)
    config = override(TranslationConfig(), list(overrides))
    return open_untrained(Task, config, data, assets, std=0.4)[0]


def predict(task: Task, source: str, options: TranslationOptions) -> Prediction:
    (prediction,) = task.predict([{"source": source}], options)
    return prediction


@pytest.fixture(scope="module", params=TINY)
def task(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    folder = tmp_path_factory.mktemp("translation")
    yield make(folder, digits(150), f"model.architecture={request.param}", *TINY[request.param])


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """A Transformer over byte pairs."""
    return make(tmp_path_factory.mktemp("bpe"), sentences(), *TINY["transformer"], "data.vocabulary_size=300")


# losses


def test_losses_are_finite_have_a_gradient_and_equal_a_hand_computation(task: Task) -> None:
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    ((network, loss),) = task.losses(batch, task.networks())
    assert network == "model"
    loss.backward()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in task.model.parameters())
    with torch.no_grad():
        memory = task.model.encode(batch.source, batch.keep)
        logits = task.model.head(task.model.decode(batch.inputs, memory)).double()
    by_hand = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-1, label_smoothing=0.1)
    steps = [
        float(halting.cost[row, at])
        for halting, real in zip(memory.halting, (batch.keep, batch.labels >= 0), strict=False)
        for row, at in real.nonzero().tolist()
    ]
    ponder = task.config.model.universal.ponder * sum(steps) / batch.count  # padding costs nothing
    assert bool(memory.halting) == (task.config.model.architecture == "universal")
    assert float(loss.detach()) == pytest.approx(float(by_hand) + ponder, rel=1e-4)
    task.model.zero_grad()


def test_the_loss_is_computed_by_the_network_that_is_given(task: Task) -> None:
    """A wrapper (torch.compile, DDP) sees the whole loss: nothing is computed beside it."""
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    calls = []

    class Wrapper(torch.nn.Module):
        def forward(self, *inputs: Any) -> torch.Tensor:
            calls.append(inputs)
            return torch.tensor(7.0)

    ((_, loss),) = task.losses(batch, {"model": Wrapper()})
    assert float(loss) == 7 and len(calls) == 1


def test_a_batch_starts_with_the_start_token_and_predicts_the_end(task: Task) -> None:
    (batch,) = task.source(Split.TRAIN, 1).at(2)
    source_end, start, end = task.tokenizers.special
    pairs = task.splits[Split.TRAIN]
    rows = [pairs.lines.tolist().index(line) for line in batch.lines]
    for at, row in enumerate(rows):
        source, target = pairs.source[row].tolist(), pairs.target[row].tolist()
        assert batch.source[at][batch.keep[at]].tolist() == [*source, source_end]
        real = batch.labels[at] >= 0
        assert batch.labels[at][real].tolist() == [*target, end]
        assert batch.inputs[at][real].tolist() == [start, *target]
    assert batch.count == sum(len(pairs.target[row]) + 1 for row in rows)
    assert batch.units == batch.count + sum(len(pairs.source[row]) + 1 for row in rows)  # real tokens, no padding
    assert batch.rows[0] == f"line {batch.lines[0]}"


def copy_of(task: Task, **settings: Any) -> Task:
    """Return the task with other settings and the same weights."""
    copy = Task(dataclasses.replace(task.config, **settings), task.tokenizers, task.reader)
    copy.model.load_state_dict(task.model.state_dict())
    copy.model.eval()
    copy.splits = task.splits
    return copy


def test_consistency_is_0_where_both_passes_agree_and_positive_with_dropout(task: Task) -> None:
    other = copy_of(task, consistency=5.0)
    (batch,) = task.source(Split.TRAIN, 1).at(0)
    with torch.no_grad():
        losses = [float(next(one.losses(batch, one.networks()))[1]) for one in (task, other)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)
        other.model.train()
        values = []
        for consistency in (1e-9, 50.0):
            torch.manual_seed(1)
            loss = Seq2SeqLoss(smoothing=0.1, consistency=consistency)
            values.append(float(other.model(batch.source, batch.keep, batch.inputs, batch.labels, loss)))
    assert values[1] > 1.01 * values[0]


def test_a_step_in_micro_batches_has_the_same_mean_loss(translator: Task) -> None:
    whole, parts = (copy_of(translator, micro_batches=count, label_smoothing=0.0) for count in (1, 3))
    (batch,) = whole.source(Split.TRAIN, 1).at(0)
    pieces = parts.source(Split.TRAIN, 1).at(0)
    assert len(pieces) == 3 and sum(piece.count for piece in pieces) == batch.count
    with torch.no_grad():
        total = float(next(whole.losses(batch, whole.networks()))[1])
        losses = [float(next(parts.losses(piece, parts.networks()))[1]) for piece in pieces]
    weighted = sum(loss * piece.count / batch.count for loss, piece in zip(losses, pieces, strict=True))
    assert weighted == pytest.approx(total, rel=1e-5)


# teacher forcing and search


def test_a_given_target_is_scored_as_the_loss_scores_it(task: Task) -> None:
    source, target = digits(150)[3]
    prediction = predict(task, source, TranslationOptions(target=target))
    special = task.tokenizers.special
    ids = torch.tensor([[*task.tokenizers.source.encode(source), special.source_end]])
    expected = task.tokenizers.target.encode(target)
    with torch.no_grad():
        keep = torch.ones_like(ids, dtype=torch.bool)
        logits = task.model(ids, keep, torch.tensor([[special.target_start, *expected]]))[0]
    labels = torch.tensor([*expected, special.target_end])
    loss = float(F.cross_entropy(logits, labels))
    assert prediction.scores["log_probability"] == pytest.approx(-loss * len(labels), abs=1e-4)
    assert prediction.scores["perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
    best = [token for token in logits.argmax(-1).tolist() if token != special.target_end]
    assert prediction.text == task.tokenizers.target.decode(best).strip()


def test_search_differs_from_teacher_forcing(task: Task) -> None:
    """An untrained model: after words that it would not have generated itself, it predicts something else."""
    differ = 0
    for source, target in digits(150)[:8]:
        searched = predict(task, source, dataclasses.replace(SEARCH, attention=False))
        forced = predict(task, source, TranslationOptions(target=target, attention=False))
        differ += searched.text != forced.text
    assert differ >= 4


def test_the_output_starts_with_the_prefix(task: Task) -> None:
    prediction = predict(task, "407", dataclasses.replace(SEARCH, prefix="seven two"))
    assert prediction.text.startswith("seven two")


def test_many_inputs_are_predicted_as_each_alone_in_order(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation, "CHUNK", 4)  # several searches
    inputs = [{"source": source} for source, _ in digits(150)[:9]]
    together = list(task.predict(inputs, SEARCH))
    assert [prediction.inputs for prediction in together] == inputs
    for example, prediction in zip(inputs, together, strict=True):
        alone = predict(task, example["source"], SEARCH)
        assert prediction.text == alone.text
        assert prediction.scores["score"] == pytest.approx(alone.scores["score"], abs=1e-4)


def test_alternatives_are_worse_and_different(translator: Task) -> None:
    prediction = predict(translator, "a text", TranslationOptions(beam=4, n_best=4, attention=False))
    scores = [one.scores["score"] for one in (prediction, *prediction.alternatives)]
    assert len(prediction.alternatives) == 3 and scores == sorted(scores, reverse=True)


# streaming and threads


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("prefix", ["", "seven two"])
def test_a_stream_has_the_text_of_the_prediction(task: Task, beam: int, prefix: str) -> None:
    options = TranslationOptions(beam=beam, prefix=prefix, attention=False)
    for source, _ in digits(150)[:4]:
        tokens = list(task.stream({"source": source}, options))
        assert "".join(token.text for token in tokens) == predict(task, source, options).text
        assert not any(token.attention for token in tokens)


def test_a_stream_of_byte_pairs_has_the_text_of_the_prediction(translator: Task) -> None:
    for beam in (1, 4):
        options = TranslationOptions(beam=beam, attention=False)
        for source, _ in sentences()[:4]:
            text = "".join(map(str, translator.stream({"source": source}, options)))
            assert text == predict(translator, source, options).text


@pytest.mark.parametrize("beam", [1, 3])
def test_a_streamed_token_has_the_cross_attention_of_all_tokens_so_far(task: Task, beam: int) -> None:
    options = TranslationOptions(beam=beam)
    cross = [name for name, _ in task.model.named_modules() if name.endswith(("cross", "attention"))]
    prediction = predict(task, "407", options)
    count = 0
    for token in task.stream({"source": "407"}, options):
        if not token.token:
            continue
        count += 1
        assert list(token.attention) == cross and token.prompt[:-1] == ("4", "0", "7")
        for name, weights in token.attention.items():
            assert weights.shape[1:] == (count, 4)
            expected = prediction.attention[name].rows(0, count)
            torch.testing.assert_close(weights.rows(0, count), expected, atol=1e-5, rtol=1e-4)
    assert count == len(prediction.trace[1])


def test_a_suspended_stream_records_no_other_call(translator: Task) -> None:
    options = TranslationOptions(beam=1)
    alone = [token.attention["decoder.1.cross"].shape for token in translator.stream({"source": "a text"}, options)]
    beside = []
    for token in translator.stream({"source": "a text"}, options):
        beside.append(token.attention["decoder.1.cross"].shape)
        predict(translator, "another and longer text", options)
        with watch(translator.model, "decoder.0.cross") as maps:
            predict(translator, "another one", dataclasses.replace(options, attention=False))
        assert maps["decoder.0.cross"].shape[2] > 0
    assert beside == alone and len(alone) > 2


def test_two_threads_translate_with_one_model_at_once(translator: Task) -> None:
    """Reading changes nothing: each thread gets what it gets alone, the weights and the mode stay."""
    groups = [[{"source": source} for source, _ in sentences()[first : first + 10]] for first in (0, 10)]
    options = TranslationOptions(beam=2)
    expected = [[prediction.text for prediction in translator.predict(group, options)] for group in groups]
    before = {name: value.clone() for name, value in translator.model.state_dict().items()}
    results: dict[int, list[str]] = {}

    def work(number: int) -> None:
        results[number] = [prediction.text for prediction in translator.predict(groups[number], options)]

    for _ in range(3):
        in_two_threads(work)
        assert [results[0], results[1]] == expected
    assert all(torch.equal(value, before[name]) for name, value in translator.model.state_dict().items())
    assert not translator.model.training and not any("forward" in vars(module) for module in translator.model.modules())


# attention


def test_maps_have_the_tokens_of_both_sides_on_their_axes(task: Task) -> None:
    architecture, target = task.config.model.architecture, "four zero"
    prediction = predict(task, "407", TranslationOptions(target=target))
    names = {name.rpartition(".")[2] for name in prediction.attention}
    assert (
        names
        == {
            "rnn": set(),
            "rnn+attention": {"attention"},
            "convolution": {"cross"},
            "transformer": {"self", "cross"},
            "universal": {"self", "cross"},
        }[architecture]
    )
    source, output, inputs = ("4", "0", "7"), ("four", "zero"), ("four", "zero")
    for one in prediction.attention.values():
        heads, queries, keys = one.weights.shape
        assert (len(one.queries), len(one.keys)) == (queries, keys)
        torch.testing.assert_close(one.weights.sum(-1), torch.ones(heads, queries))
        if one.name.endswith(("cross", "attention")):  # T x S: a row belongs to the token it predicts
            assert one.weights.shape[1:] == (3, 4)
            assert one.queries.labels[:-1] == output and one.keys.labels[:-1] == source
            assert (one.queries.role, one.keys.role) == (Role.TARGET, Role.SOURCE)
        elif one.name.startswith("encoder"):
            assert one.queries == one.keys and one.keys.labels[:-1] == source
        else:
            assert one.queries == one.keys and one.keys.labels[1:] == inputs
            assert (one.weights.triu(1) == 0).all()
    assert (prediction.alignment is None) == (architecture == "rnn")
    if prediction.alignment is not None:
        assert prediction.alignment.weights.shape == (1, 2, 3)  # words alone: the end tokens are not aligned
        assert (prediction.alignment.queries.labels, prediction.alignment.keys.labels) == (output, source)
    steps = {scores.axis.role: scores for scores in prediction.token_scores}
    assert set(steps) == ({Role.SOURCE, Role.TARGET} if architecture == "universal" else set())
    for scores in steps.values():
        assert len(scores.values) == len(scores.axis)
        assert all(1 <= value <= 2 for value in scores.values)


def test_tokens_know_their_words(translator: Task) -> None:
    source, target = sentences()[4]
    prediction = predict(translator, source, TranslationOptions(target=target))
    for one in prediction.attention.values():
        for axis in (one.queries, one.keys):
            assert len(axis.words) == len(axis)
            text = source if axis.role is Role.SOURCE else target
            assert len(set(axis.words)) == len(text.split()) + 1  # and the end or start token


def test_the_analysis_chooses_the_map_of_the_alignment(translator: Task) -> None:
    options = TranslationOptions(target="some words")
    try:
        for name in ("decoder.0.cross", "decoder.1.cross"):
            for head in (0, 1, None):
                translator.analysis = {"alignment": {"name": name, "head": head}}
                prediction = predict(translator, "a text", options)
                chosen = prediction.attention[name].weights
                expected = chosen.mean(0) if head is None else chosen[head]
                assert prediction.alignment is not None
                assert torch.equal(prediction.alignment.weights[0], expected[:-1, :-1])  # without the end tokens
    finally:
        translator.analysis = {}


@pytest.mark.parametrize(
    "alignment",
    [
        {"name": "decoder.9.cross", "head": 0},
        {"name": ["decoder.0.cross"], "head": 0},
        {"name": "decoder.0.cross", "head": 99},
        {"name": "decoder.0.cross", "head": -1},
        {"name": "decoder.0.cross", "head": True},
        {"name": "decoder.0.cross", "head": "0"},
        {"head": 1},
        ["decoder.0.cross"],
        "decoder.0.cross",
    ],
)
def test_an_analysis_of_another_model_is_refused(translator: Task, alignment: object) -> None:
    try:
        translator.analysis = {"alignment": alignment}
        with pytest.raises(ModelFileError, match=r"analysis\.json: alignment must name one of decoder\.0\.cross, "):
            predict(translator, "a text", TranslationOptions(target="some words"))
    finally:
        translator.analysis = {}


def test_the_analysis_is_one_of_the_cross_attention_heads(translator: Task) -> None:
    choice = translator.analyse()["alignment"]
    assert choice["name"] in ("decoder.0.cross", "decoder.1.cross")
    assert choice["head"] in (0, 1, None)
    assert 0 < choice["score"] < 1


def test_a_snapshot_has_the_attention_of_two_validation_pairs(translator: Task) -> None:
    pairs = translator.splits[Split.VALID]
    snapshot = translator.attention_snapshot()
    assert [one.inputs["source"] for one in snapshot] == [pairs.texts[0][0], pairs.texts[len(pairs) // 2][0]]
    assert all("decoder.1.cross" in one.attention for one in snapshot)


# scores


def test_scores_can_be_repeated_by_others(translator: Task, task: Task) -> None:
    evaluation = translator.evaluate(Split.VALID)
    assert translator.metric == METRICS["bleu"] and translator.metric.higher_is_better
    assert {"bleu", "bleu_lowercase", "chrf", "exact", "loss", "pairs"} <= set(evaluation.values)
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in evaluation.signatures["bleu"]
    assert "case:lc" in evaluation.signatures["bleu_lowercase"] and "nc:6" in evaluation.signatures["chrf"]
    assert evaluation["pairs"] == len(translator.splits[Split.VALID])
    quick = task.evaluate(Split.VALID, quick=True)
    assert task.metric == METRICS["exact"] and {"exact", "token_error", "loss"} <= set(quick.values)
    assert quick["loss"] == pytest.approx(-_mean_log_probability(task), rel=1e-4)
    assert set(evaluation.values) | set(quick.values) <= set(METRICS)
    assert not METRICS["token_error"].higher_is_better and not METRICS["loss"].higher_is_better


def test_a_quick_evaluation_is_complete_where_it_is_all_a_full_one_does(translator: Task) -> None:
    greedy = copy_of(translator, search=dataclasses.replace(translator.config.search, beam=1))
    quick, full = (greedy.evaluate(Split.VALID, quick=quick) for quick in (True, False))
    assert quick == full and quick.complete
    assert not translator.evaluate(Split.VALID, quick=True).complete  # greedy, where a full evaluation searches a beam


def _mean_log_probability(task: Task) -> float:
    """Return the mean log-probability per token of the references under teacher forcing."""
    pairs, total, count = task.splits[Split.VALID], 0.0, 0
    for at, (source, target) in enumerate(pairs.texts):
        total += predict(task, source, TranslationOptions(target=target, attention=False)).scores["log_probability"]
        count += len(pairs.target[at]) + 1
    return total / count


def test_a_file_without_validation_pairs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pairs.tsv: the valid part has no pairs, expected at least one; give more"):
        make(tmp_path, [("12", "two one")] * 6)


def test_the_fingerprint_covers_the_validation_data(tmp_path: Path) -> None:
    rows = sentences(60)
    fingerprints = []
    for number, valid in enumerate((rows[:5], rows[:5], rows[:6])):
        file = write(tmp_path / f"valid-{number}.tsv", valid)
        settings = [*TINY["transformer"], "data.tokenizer=words", f"data.valid={file}"]
        fingerprints.append(make(tmp_path, rows, *settings).fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


# exchange


def test_a_translator_survives_a_round_trip_through_pretrained(translator: Task) -> None:
    pretrained = translator.to_pretrained()
    assert pretrained.task == "translation" and pretrained.config is translator.config.model.transformer
    again = Task.from_pretrained(pretrained)
    assert again.tokenizers.special == translator.tokenizers.special and again.tokenizers.joint
    options = TranslationOptions(beam=2)
    assert predict(again, "a text", options).text == predict(translator, "a text", options).text
    with pytest.raises(UsageError, match="cannot be evaluated"):
        again.load_data(Path("pairs.tsv"))
    several = dataclasses.replace(pretrained, processor=dataclasses.replace(pretrained.processor, eos_ids=(0, 5)))
    with pytest.raises(UsageError, match="eos_token_id must be one id for a translator, but is 0, 5"):
        Task.from_pretrained(several)
    wrong = dataclasses.replace(pretrained, processor=dataclasses.replace(pretrained.processor, eos_ids=()))
    with pytest.raises(UsageError, match="must have decoder_start_token_id and eos_token_id, but does not have both"):
        Task.from_pretrained(wrong)
    other = dataclasses.replace(pretrained, network=torch.nn.Linear(2, 2), task="language_model")
    with pytest.raises(UsageError, match="a language_model cannot run as the task translation; leave out --task, or"):
        Task.from_pretrained(other)
    with pytest.raises(UsageError, match="translation cannot be fine-tuned from a pretrained model yet"):
        Task.prepare(translator.config, Path("pairs.tsv"), Path(), base=pretrained)


# learning


@pytest.mark.slow
def test_it_learns_to_read_numbers_backwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    data = write(tmp_path / "pairs.tsv", digits())
    shape = ["dim=48", "hidden=96", "depth=1", "decoder_depth=1"]
    overrides = [*(f"model.transformer.{setting}" for setting in shape), "batch_tokens=600", "train.steps=400"]
    overrides += ["train.device=cpu", "train.evaluate_every=1000"]
    api.train(data, task="translation", name="a", root=tmp_path, overrides=overrides, progress=False)
    model = api.load(tmp_path / "a", device="cpu")
    assert model.evaluate(data)["exact"] >= 95
    prediction = model("4071")
    assert prediction.text == "one seven zero four"
    assert prediction.alignment is not None
    assert prediction.alignment.weights.shape == (1, 4, 4)


# the task of a file


@pytest.mark.parametrize(
    ("name", "rows", "task"),
    [
        ("pairs.tsv", ["one\teins", "two\tzwei", "three\tdrei"], "translation"),
        ("pairs.csv", ["source,target", "one,eins", "two,zwei"], "translation"),
        ("pairs.csv", ["en,de", "one,eins", "two,zwei"], "translation"),
        ("reviews.csv", ["text,label", "good film,1", "bad film,0"], "text_classification"),
        ("reviews.csv", ["text,label", *(f"film {at},view {at} of it" for at in range(30))], "language_model"),
        ("sms.tsv", [f"{'ham' if at % 3 else 'spam'}\tcall {at}" for at in range(30)], "text_classification"),
        (
            "nli.csv",
            ["premise,hypothesis,label", *(f"a {at},b {at},{at % 3}" for at in range(30))],
            "text_classification",
        ),
        ("rows.jsonl", [f'{{"text": "a {at}", "label": {at % 2}}}' for at in range(30)], "text_classification"),
        ("alike.csv", ["sentence1,sentence2,score", "a cat,a dog,2.5", "one,two,3"], "regression"),
        ("alike.csv", [f"a cat {at},a dog {at},{at % 7}.5" for at in range(30)], "regression"),
        ("pairs.csv", ["source,target,score", "one,eins,0.5", "two,zwei,0.7"], "translation"),
        ("numbers.tsv", [f"number {at}\t{at}" for at in range(30)], "translation"),
        ("attributed.tsv", [f"one {at}\teins {at}\tby somebody" for at in range(30)], "translation"),
        ("words.conll", ["Anna B-PER", "ran O"], "tagging"),
        (
            "questions.json",
            ['{"version": "v2.0", "data": [{"title": "", "paragraphs": [{"qas": []', "}]}]}"],
            "question_answering",
        ),
        ("book.txt", ["It was", "a dark", "night"], "language_model"),
    ],
)
def test_the_task_is_guessed_from_the_file(tmp_path: Path, name: str, rows: list[str], task: str) -> None:
    (tmp_path / name).write_text("\n".join(rows) + "\n")
    assert guess_task(tmp_path / name) == task
    assert guess_task(tmp_path / name, ["data.target=x"]) == "translation"


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            ["ham\tsee you", "spam\twin", "ham\thello", "ham\tgood bye"],
            "2 columns without names, expected one, or a choice",
        ),
        (
            ["id\tsentence1\tsentence2", *(f"{at * 37 % 61}\ta {at}\tb {at}" for at in range(30))],
            "no column is called text, .* expected one of: id, sentence1, sentence2",
        ),
        (["price\tcolour", "1\tred", "2\tblue"], "no column is called text, .* expected one of: price, colour"),
    ],
)
def test_a_table_that_may_be_anything_is_asked_about(tmp_path: Path, rows: list[str], problem: str) -> None:
    (tmp_path / "t.tsv").write_text("".join(f"{row}\n" for row in rows))
    options = (
        r"--text-column NAME and --label-column NAME .*, --source NAME and --target NAME .*, or --text-column NAME"
    )
    with pytest.raises(DataError, match=rf"t\.tsv:1: {problem}; name them: {options} alone for a language model"):
        guess_task(tmp_path / "t.tsv")


def test_the_task_is_guessed_from_column_overrides(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("note,mood,other,grade\n" + "".join(f"a {at},m{at % 2},b {at},{at / 4}\n" for at in range(40)))
    assert guess_task(path) == "text_classification"  # of mood, the only column with classes
    assert guess_task(path, ["data.text_column=note"]) == "language_model"
    assert guess_task(path, ["data.label_column=mood"]) == "text_classification"
    assert guess_task(path, ["data.text_column=note", "data.label_column=mood"]) == "text_classification"
    assert (
        guess_task(path, ["data.text_column=note", "data.second_column=other", "data.label_column=grade"])
        == "regression"
    )


def test_a_folder_with_tagged_words_is_for_tagging(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("names\n")
    (tmp_path / "train.conll").write_text("Anna B-PER\n")
    assert guess_task(tmp_path) == "tagging"


def test_real_files_are_guessed(dataset: Callable[[str], Path]) -> None:
    files = {
        "classification/sms_spam/SMSSpamCollection": "text_classification",
        "classification/sst2/train.tsv": "text_classification",
        "classification/hate_offensive/labeled_data.csv": "text_classification",
        "pairs/stsb/stsb-en-train.csv": "regression",
        "ner/wnut17/wnut17train.conll": "tagging",
        "qa/squad2/dev-v2.0.json": "question_answering",
        "translation/cmn_2024.txt": "translation",
        "lm/tinyshakespeare.txt": "language_model",
    }
    assert {name: guess_task(dataset(name)) for name in files} == files


def test_a_translation_that_was_cut_off_has_a_note(translator: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = [[Hypothesis((4, 5), -1.0, -1.0, ended=False)]]
    monkeypatch.setattr(translation, "search_targets", lambda *_, **__: cut)
    prediction = predict(translator, "a", TranslationOptions(attention=False))
    assert prediction.notes[-1] == "the text was cut after 2 tokens, the maximum for this input: its end may be missing"
    cut[0] = [Hypothesis((4, 5), -1.0, -1.0)]
    assert not any("cut" in note for note in predict(translator, "a", TranslationOptions(attention=False)).notes)
