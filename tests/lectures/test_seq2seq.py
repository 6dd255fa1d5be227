"""Lecture rows R05, R10, R34, R40, R41, R44 and R49: sequence to sequence, from one vector to halting."""

from pathlib import Path

import pytest
import torch

import saccade
from saccade.decode.search import Search, search
from saccade.models.presets import TRANSLATION
from saccade.models.seq2seq.architectures import Seq2SeqConfig, build
from saccade.models.seq2seq.interface import DecoderState, Vocabularies
from saccade.models.seq2seq.recurrent import RecurrentConfig
from saccade.models.seq2seq.transformer import Translator, TranslatorConfig
from saccade.models.seq2seq.universal import UniversalConfig, UniversalTranslator
from saccade.nn.attention import Attention
from saccade.nn.layers import FeedForward, Residual
from saccade.nn.masks import Causal
from saccade.nn.probe import watch
from saccade.nn.recurrent import Recurrent
from saccade.nn.transformer import Layer

CHINESE = [
    ("機器學習", "machine learning"),
    ("機器", "machine"),
    ("學習", "learning"),
    ("深度學習", "deep learning"),
    ("機器翻譯", "machine translation"),
    ("自然語言", "natural language"),
]


def lively(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model.double().eval()


def trained(folder, monkeypatch, rows, steps, *overrides):
    """A model trained on a few pairs, which are its validation pairs too."""
    monkeypatch.setenv("SACCADE_CACHE", str(folder / "cache"))
    data = Path(folder) / "pairs.tsv"
    data.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    loop = [f"train.steps={steps}", "train.device=cpu", "train.evaluate_every=1000", "label_smoothing=0"]
    overrides = [*overrides, *loop, "batch_tokens=400", f"data.valid={data}"]
    run = saccade.train(data, task="translation", name="run", root=folder, overrides=overrides, progress=False)
    return saccade.load(run, device="cpu")


def ends_on_stop(model, text):
    """Whether the search itself generated the end token, far from the maximum length."""
    (hypotheses,) = model.task._search([model.task.tokenizers.source.encode(text)], Search())
    return hypotheses[0].ended


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@torch.no_grad()
def test_r05_unrolled_equals_looped(cell):
    layer = lively(Recurrent(cell, 4, 5, depth=2))
    x = torch.randn(3, 6, 4).double()
    unrolled, last = layer(x)
    state, looped = layer.start(3), []
    for token in x.unbind(1):
        y, state = layer.step(token, state)
        looped.append(y)
    torch.testing.assert_close(torch.stack(looped, 1), unrolled, atol=1e-14, rtol=0)
    for ours, theirs in zip(state, last, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-14, rtol=0)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@torch.no_grad()
def test_r05_teacher_forced_and_free_running_outputs_differ_and_can_be_printed(cell, capsys):
    config = RecurrentConfig(dim=8, hidden=10, cell=cell)
    model = lively(build(Seq2SeqConfig(architecture="rnn", rnn=config), Vocabularies(9, 9)))
    source, keep = torch.randint(2, 9, (1, 5)), torch.ones(1, 5, dtype=torch.bool)
    given = torch.tensor([[0, 3, 7, 2, 5, 4]])
    forced = model(source, keep, given).argmax(-1)[0].tolist()
    writing = DecoderState(model, model.encode(source, keep), 7)
    ((found,),) = search(writing, [6], start_id=0, end_id=1, settings=Search(beam=1))
    print("teacher-forced", *forced)
    print("free-running", *found.ids)
    assert forced[0] == found.ids[0]  # both have seen START alone
    assert tuple(forced) != found.ids
    assert capsys.readouterr().out.splitlines()[1] == "free-running " + " ".join(map(str, found.ids))


def test_r10_additive_weights_are_a_distribution_and_are_learned_without_supervision():
    config = RecurrentConfig(dim=8, hidden=10, score="additive")
    model = lively(build(Seq2SeqConfig(architecture="rnn+attention", rnn=config), Vocabularies(9, 9)))
    source, keep, ids = torch.randint(2, 9, (2, 5)), torch.ones(2, 5, dtype=torch.bool), torch.randint(2, 9, (2, 4))
    with watch(model) as maps:
        logits = model(source, keep, ids)
        weights = maps["attention"].rows()
    assert weights.shape == (2, 1, 4, 5)
    assert ((weights > 0) & (weights < 1)).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 4).double())
    logits.log_softmax(-1)[..., 3].sum().backward()
    scorer = [model.attention.score.weight, model.attention.q.weight, model.attention.kv.weight]
    assert all(value.grad.abs().sum() > 0 for value in scorer)


@torch.no_grad()
def test_r34_cross_attention_is_a_matrix_of_target_by_source():
    config = TranslatorConfig(dim=8, depth=1, decoder_depth=2, heads=2, hidden=12)
    model = lively(Translator(config, Vocabularies(9, 9)))
    with watch(model, "*.cross") as maps:
        model(torch.randint(9, (1, 7)), torch.ones(1, 7, dtype=torch.bool), torch.randint(9, (1, 4)))
        shapes = {name: found.shape for name, found in maps.items()}
    assert shapes == {"decoder.0.cross": (1, 2, 4, 7), "decoder.1.cross": (1, 2, 4, 7)}


def test_r40_r41_base_has_six_encoder_and_six_decoder_blocks_of_two_and_three_sub_blocks():
    config = TranslatorConfig(**TRANSLATION["base"]["model"]["transformer"])
    with torch.device("meta"):
        model = Translator(config, Vocabularies(100, 100))
    for stack, attentions in ((model.encoder, 1), (model.decoder, 2)):
        layers = [module for module in stack.children() if isinstance(module, Layer)]
        assert len(layers) == 6
        for layer in layers:
            parts = [type(module) for module in layer.children()]
            assert parts.count(Attention) == attentions and parts.count(FeedForward) == 1
            assert parts.count(Residual) == attentions + 1
    assert (config.dim, config.heads, config.hidden) == (512, 8, 2048)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["rnn+attention"])
def test_r44_from_a_file_of_pairs_to_machine_learning(tmp_path, monkeypatch, architecture):
    shape = ["dim=32", "hidden=64", "depth=1", "decoder_depth=1", "dropout=0", "embedding_dropout=0"]
    overrides = [f"model.transformer.{setting}" for setting in shape]
    overrides += ["model.rnn.dim=32", "model.rnn.hidden=48", "model.rnn.dropout=0"]
    overrides += [f"model.architecture={architecture}"]
    model = trained(tmp_path, monkeypatch, CHINESE, 150, *overrides)
    answer = model("機器學習", beam=4, n_best=2, attention=True)
    assert answer.text == "machine learning"
    assert ends_on_stop(model, "機器學習")
    assert len(answer.alternatives) == 1 and answer.alternatives[0].scores["score"] < answer.scores["score"]
    cross = [one for one in answer.attention.values() if (one.queries.role, one.keys.role) == ("target", "source")]
    assert cross and all(one.weights.shape[-1] == len(one.keys.labels) for one in cross)
    assert model.evaluate(tmp_path / "pairs.tsv")["exact"] == 100


@torch.no_grad()
def test_r49_one_block_is_repeated_and_each_token_halts_adaptively():
    counts = set()
    for depth in (1, 2, 6):
        config = UniversalConfig(dim=16, heads=2, hidden=24, depth=depth, decoder_depth=depth)
        model = UniversalTranslator(config, Vocabularies(30, 30))
        counts.add(sum(value.numel() for value in model.parameters()))
    assert len(counts) == 1
    model = lively(model)
    source = torch.randint(30, (2, 9))
    memory = model.encode(source, torch.ones(2, 9, dtype=torch.bool))
    steps = memory.halting[0].steps
    assert steps.shape == (2, 9) and steps.min() >= 1 and steps.max() <= 6
    assert steps.unique().numel() > 1  # not all tokens are thought about equally long
    assert model.encoder(model.embed(model.source, source), mask=Causal())[1].steps.shape == (2, 9)
