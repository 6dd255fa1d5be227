"""Every sequence-to-sequence architecture: padding, causality, gradients, loss, caches, beams, recorded attention."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from saccade.decode.search import Search, search
from saccade.models.presets import TRANSLATION
from saccade.models.seq2seq.architectures import Seq2SeqConfig, build
from saccade.models.seq2seq.convolution import ConvolutionConfig
from saccade.models.seq2seq.decoder_only import DecoderConfig
from saccade.models.seq2seq.interface import DecoderState, Memory, Seq2SeqLoss, Vocabularies
from saccade.models.seq2seq.recurrent import RecurrentConfig
from saccade.models.seq2seq.transformer import Translator, TranslatorConfig
from saccade.models.seq2seq.universal import UniversalConfig
from saccade.nn.attention import Additive, Attention, Bilinear
from saccade.nn.cache import KVCache
from saccade.nn.probe import watch

SIZES = {"joint": Vocabularies(9, 9, joint=True), "apart": Vocabularies(11, 9)}
BEGIN, END = 0, 1


def rnn(architecture, **shape):
    return Seq2SeqConfig(architecture=architecture, rnn=RecurrentConfig(dim=8, hidden=6, **shape))


def transformer(**shape):
    small = {"dim": 8, "depth": 2, "decoder_depth": 2, "heads": 2, "hidden": 12}
    return Seq2SeqConfig(architecture="transformer", transformer=TranslatorConfig(**{**shape, **small}))


def universal(**shape):
    small = {"dim": 8, "depth": 3, "decoder_depth": 3, "heads": 2, "hidden": 12}
    return Seq2SeqConfig(architecture="universal", universal=UniversalConfig(**{**small, **shape}))


def decoder(**shape):
    small = {"dim": 8, "depth": 4, "heads": 2, "hidden": 12, "window_size": 3}
    return Seq2SeqConfig(architecture="decoder", decoder=DecoderConfig(**{**small, **shape}))


CASES = {
    "rnn": rnn("rnn", cell="rnn", depth=2),
    "gru": rnn("rnn", cell="gru"),
    "lstm": rnn("rnn", cell="lstm", depth=2, bidirectional=False),
    "additive": rnn("rnn+attention", score="additive", cell="gru", depth=2),
    "dot": rnn("rnn+attention", score="dot", cell="rnn", bidirectional=False),
    "bilinear": rnn("rnn+attention", score="bilinear", cell="lstm", depth=2),
    "convolution": Seq2SeqConfig(
        architecture="convolution", convolution=ConvolutionConfig(dim=8, depth=3, decoder_depth=2)
    ),
    "one-wide": Seq2SeqConfig(architecture="convolution", convolution=ConvolutionConfig(dim=8, kernel_size=1)),
    "transformer": transformer(),
    "post-norm": transformer(norm_first=False, norm="layer", bias=True),
    "tied": transformer(tie_embeddings=True),
    "tied-joint": transformer(tie_embeddings=True),
    "window": transformer(window=2),
    "published": transformer(**TRANSLATION["base"]["model"]["transformer"]),
    "universal": universal(),
    "universal-post-norm": universal(norm_first=False, norm="layer", position="sinusoidal", bias=True),
    "universal-window": universal(window=2, kv_heads=1),
    "decoder": decoder(),
    "decoder-post-norm": decoder(
        norm_first=False, norm="layer", position="sinusoidal", bias=True, kv_heads=1, stride=2
    ),
}
ATTENDING = [name for name in CASES if name not in ("rnn", "gru", "lstm") and not name.startswith("decoder")]
every = pytest.mark.parametrize("name", CASES)


def randomize(model):
    """Make the weights large enough that every layer and every position matters, in double precision."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model.double().eval()


def make(name):
    return randomize(build(CASES[name], SIZES["joint" if name == "tied-joint" else "apart"]))


def some(rows=3, tokens=5):
    """Sources of 5, 3 and 1 tokens, and prefixes of targets."""
    source, ids = torch.randint(2, 9, (rows, 5)), torch.randint(2, 9, (rows, tokens))
    return source, torch.arange(5) < torch.tensor([5, 3, 1])[:rows, None], ids


def assert_same(a, b):
    torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


# --- teacher forcing ---


@every
@torch.no_grad()
def test_a_padded_batch_equals_each_row_alone(name):
    model, (source, keep, ids) = make(name), some()
    logits = model(source, keep, ids)
    for row, length in enumerate(keep.sum(1).tolist()):
        alone = model(source[row : row + 1, :length], keep[row : row + 1, :length], ids[row : row + 1])
        assert_same(logits[row], alone[0])
    assert not torch.allclose(logits[0], logits[1])


@every
@torch.no_grad()
def test_padding_ids_change_nothing(name):
    model, (source, keep, ids) = make(name), some()
    other = torch.where(keep, source, (source - 1) % 9)
    assert not torch.equal(other, source)
    assert torch.equal(model(source, keep, ids), model(other, keep, ids))
    assert not torch.equal(model(source, keep, ids), model((source - 1) % 9, keep, ids))


@every
@torch.no_grad()
def test_decoding_is_causal(name):
    model, (source, keep, ids) = make(name), some()
    other = ids.clone()
    other[:, 3] = (ids[:, 3] - 1) % 9
    before, after = model(source, keep, ids), model(source, keep, other)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3], after[:, 3])


@every
def test_the_gradient_reaches_every_parameter(name):
    model, (source, keep, ids) = make(name), some()
    model(source, keep, ids).square().sum().backward()
    missing = [label for label, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    assert missing == []
    assert all(value.grad.isfinite().all() for value in model.parameters())


@pytest.mark.parametrize(("name", "kind"), [("additive", Additive), ("bilinear", Bilinear)])
def test_the_score_function_is_the_configured_one_and_has_a_gradient(name, kind):
    model, (source, keep, ids) = make(name), some()
    model(source, keep, ids).square().sum().backward()
    assert type(model.attention.score) is kind
    assert model.attention.score.weight.grad.abs().sum() > 0


@every
def test_the_initial_loss_is_that_of_a_uniform_distribution(name):
    """With initial weights no target is much more likely than another."""
    model, (source, keep, ids) = build(CASES[name], SIZES["joint"]).eval(), some()
    with torch.no_grad():
        log_probs = model(source, keep, ids).log_softmax(-1)
    loss = -log_probs.gather(-1, ids.roll(-1)[..., None]).mean()
    assert abs(float(loss) - torch.tensor(9.0).log()) < 0.8


# --- the training loss ---


@every
def test_the_loss_is_computed_inside_the_call_and_equals_a_hand_computation(name):
    model, (source, keep, ids) = make(name), some()
    labels = torch.where(torch.arange(5) < torch.tensor([5, 2, 3])[:, None], ids.roll(-1, 1), -1)
    weights = Seq2SeqLoss(smoothing=0.1, ponder=0.3)
    memory = model.encode(source, keep)
    logits = model.head(model.decode(ids, memory))
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1, label_smoothing=0.1)
    for halting, real in zip(memory.halting, (keep, labels >= 0), strict=False):
        expected = expected + 0.3 * halting.cost[real].sum() / (labels >= 0).sum()
    assert bool(memory.halting) == name.startswith("universal")
    assert_same(model(source, keep, ids, labels, weights), expected)
    plain = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)
    assert_same(model(source, keep, ids, labels), plain)
    model(source, keep, ids, labels, weights).backward()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in model.parameters())


@pytest.mark.parametrize("name", ["additive", "convolution", "transformer", "universal", "decoder"])
def test_r_drop_runs_every_row_twice_inside_the_call(name):
    model, (source, keep, ids) = make(name), some()
    labels = ids.roll(-1, 1)
    with torch.no_grad():
        once = model(source, keep, ids, labels, Seq2SeqLoss(smoothing=0.1, ponder=0.1))
        twice = model(source, keep, ids, labels, Seq2SeqLoss(smoothing=0.1, consistency=5.0, ponder=0.1))
        assert_same(once, twice)  # without dropout both passes agree
        model.train()
        losses = []
        for consistency in (1e-9, 50.0):
            torch.manual_seed(1)
            losses.append(float(model(source, keep, ids, labels, Seq2SeqLoss(consistency=consistency))))
    assert losses[1] > 1.01 * losses[0]


# --- decoding with a cache ---


@every
@torch.no_grad()
def test_token_by_token_and_in_chunks_equals_all_at_once(name):
    model, (source, keep, ids) = make(name), some()
    memory = model.encode(source, keep)
    whole = model.decode(ids, memory)
    for sizes in ([1] * 5, [2, 1, 2], [5]):
        cache = KVCache(5)
        parts = [model.decode(chunk, memory, cache=cache) for chunk in ids.split(sizes, dim=1)]
        assert_same(torch.cat(parts, dim=1), whole)
        held = keep.sum(1) if name.startswith("decoder") else 0  # one row holds the source and the target
        assert (torch.as_tensor(cache.start) == 5 + held).all()


# Beams start, branch, end and change order; the middle sentence is dropped, then the first.
MOVES = [
    ([0, 0, 0, 1, 1, 1, 2, 2, 2], None),
    ([1, 1, 0, 5, 3, 4, 6, 8, 6], None),
    ([2, 0, 0, 8, 7, 6], [0, 2]),
    ([0, 1, 1, 3, 3, 5], None),
    ([5, 4, 3], [1]),
]


def decode_steps(model, memory, moves, shapes=None):
    """Decode along the moves: the logits must be those of the whole target with a memory of its own."""
    state, sentences = DecoderState(model, memory, 9), list(range(len(memory.keep)))
    ids = torch.randint(2, 9, (len(sentences), 1))
    targets = ids
    for rows, kept in [*moves, (None, None)]:
        width = len(targets) // len(sentences)
        own = memory.select(torch.tensor(sentences).repeat_interleave(width))
        assert_same(state.step(ids), model.head(model.decode(targets, own)[:, -1]))
        if shapes is not None:
            shapes.append(tuple(targets.shape))
        if rows is None:
            return targets, own
        state.reorder(torch.tensor(rows), None if kept is None else torch.tensor(kept))
        sentences = sentences if kept is None else [sentences[place] for place in kept]
        ids = torch.randint(2, 9, (len(rows), 1))
        targets = torch.cat((targets[rows], ids), dim=1)
    raise AssertionError


@every
@torch.no_grad()
def test_beams_that_share_a_memory_branch_end_and_leave(name):
    model, (source, keep, _) = make(name), some()
    shapes = []
    decode_steps(model, model.encode(source, keep), MOVES, shapes)
    assert shapes == [(3, 1), (9, 2), (9, 3), (6, 4), (6, 5), (3, 6)]


def test_the_ids_are_moved_to_the_device_of_the_model():
    """The search starts on the CPU, whatever the device of the model."""
    model = build(CASES["transformer"], SIZES["apart"]).to("meta")
    memory = Memory(torch.zeros(2, 4, 8, device="meta"), torch.ones(2, 4, dtype=torch.bool, device="meta"))
    devices = []
    model.target.register_forward_pre_hook(lambda _, args: devices.append(args[0].device.type))
    DecoderState(model, memory, 5).step(torch.zeros(2, 1, dtype=torch.long))
    assert devices == ["meta"]


# --- recorded attention ---


@pytest.mark.parametrize("name", ATTENDING)
@torch.no_grad()
def test_recorded_attention_follows_the_beams(name):
    """Rows grow token by token, sum to 1, and are those of the targets that were left at the end."""
    model, (source, keep, _) = make(name), some()
    memory = model.encode(source, keep)
    state, ids = DecoderState(model, memory, 9), torch.randint(2, 9, (3, 1))
    targets, sentences = ids, torch.arange(3)
    with watch(model, ["decoder*", "attention"]) as maps:
        for step, (rows, kept) in enumerate([*MOVES, (None, None)], 1):
            state.step(ids)
            for recorded in maps.values():
                weights = recorded.rows()
                assert weights.shape[0] == len(targets) and weights.shape[2] == step
                torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]).double())
            if rows is None:
                break
            state.reorder(torch.tensor(rows), None if kept is None else torch.tensor(kept))
            sentences = sentences if kept is None else sentences[kept]
            ids = torch.randint(2, 9, (len(rows), 1))
            targets = torch.cat((targets[rows], ids), dim=1)
        incremental = {label: recorded.rows() for label, recorded in maps.items()}
    own = memory.select(sentences.repeat_interleave(3))
    with watch(model, ["decoder*", "attention"]) as maps:
        model.decode(targets, own)
        at_once = {label: recorded.rows() for label, recorded in maps.items()}
    assert incremental.keys() == at_once.keys() and incremental
    for label, weights in incremental.items():
        assert_same(weights, at_once[label])
        if weights.shape[-1] == 5:  # a map of the source: padding has no weight, exactly
            assert (weights[~own.keep[:, None, None].expand_as(weights)] == 0).all()


@pytest.mark.parametrize("name", ["additive", "dot", "bilinear"])
@torch.no_grad()
def test_the_weights_of_the_rnn_are_those_of_the_formula(name):
    """One row per token; each is softmax(score(W s, W h)) of the state before the token."""
    model, (source, keep, ids) = make(name), some()
    calls = []
    model.attention.register_forward_pre_hook(lambda _, args: calls.append(args))
    with watch(model) as maps:
        model.decode(ids, model.encode(source, keep))
        weights = maps["attention"].rows()
    assert weights.shape == (3, 1, 5, 5)
    for token, (state, memory) in enumerate(calls):
        q = model.attention.q(state)
        k = model.attention.kv(memory).chunk(2, dim=-1)[0]
        if name == "additive":
            scores = torch.tanh(q + k) @ model.attention.score.weight
        else:
            middle = model.attention.score.weight if name == "bilinear" else torch.eye(6).double()
            scores = (q @ middle @ k.transpose(1, 2))[:, 0] / 6**0.5
        assert_same(weights[:, 0, token], scores.masked_fill(~keep, -torch.inf).softmax(-1))


# --- the search over every architecture ---


def searched(model, source, keep, settings, max_length=8, prefixes=()):
    memory = model.encode(source, keep)
    return search(
        DecoderState(model, memory, max_length + 1),
        [max_length] * len(source),
        start_id=BEGIN,
        end_id=END,
        settings=settings,
        prefixes=prefixes,
    )


def forced(model, source, keep, found):
    """Return the log-probability of a given output, its end included where it has one, by teacher forcing."""
    ids = torch.tensor([[BEGIN, *found.ids]])
    log_probs = model(source, keep, ids).log_softmax(-1)[0]
    labels = [*found.ids, END] if found.ended else list(found.ids)
    return float(sum(log_probs[position, label] for position, label in enumerate(labels)))


@every
@torch.no_grad()
def test_log_probabilities_are_those_of_teacher_forcing_and_batch_equals_single(name):
    model, (source, keep, _) = make(name), some()
    with torch.no_grad():
        model.head.weight *= 0.3  # so that some outputs end and some do not
    settings = Search(beam=4, n_best=4, no_repeat_ngram_size=2)
    together = searched(model, source, keep, settings)
    for row, length in enumerate(keep.sum(1).tolist()):
        mine, real = source[row : row + 1, :length], keep[row : row + 1, :length]
        (alone,) = searched(model, mine, real, settings)
        assert [found.ids for found in together[row]] == [found.ids for found in alone]
        for found, other in zip(together[row], alone, strict=True):
            assert found.log_probability == pytest.approx(other.log_probability, abs=1e-4)
            assert found.log_probability == pytest.approx(forced(model, mine, real, found), abs=1e-4)
            assert found.score == pytest.approx(found.log_probability / (len(found.ids) + found.ended))


@every
@torch.no_grad()
def test_greedy_search_is_the_loop_of_the_most_likely_token(name):
    model, (source, keep, _) = make(name), some()
    for row, (found,) in enumerate(searched(model, source, keep, Search(beam=1))):
        ids = [BEGIN]
        while len(ids) < 9 and (len(ids) == 1 or ids[-1] != END):
            logits = model(source[row : row + 1], keep[row : row + 1], torch.tensor([ids]))
            ids.append(int(logits[0, -1].argmax()))
        assert found.ended == (ids[-1] == END)
        assert list(found.ids) == (ids[1:-1] if found.ended else ids[1:])


@pytest.mark.parametrize("name", ["gru", "bilinear", "convolution", "published", "universal"])
@torch.no_grad()
def test_a_forced_prefix_keeps_true_probabilities(name):
    model, (source, keep, _) = make(name), some()
    prefixes = [(4, 4, 7), (), (2,)]
    answers = searched(model, source, keep, Search(beam=3, n_best=3), prefixes=prefixes)
    for row, (prefix, answer) in enumerate(zip(prefixes, answers, strict=True)):
        assert len(answer) == 3
        for found in answer:
            assert found.ids[: len(prefix)] == prefix
            by_hand = forced(model, source[row : row + 1], keep[row : row + 1], found)
            assert found.log_probability == pytest.approx(by_hand, abs=1e-4)


# --- presets and names ---


@pytest.mark.parametrize(("preset", "millions"), [("base", 63.1), ("large", 214.2)])
def test_the_published_presets_have_the_counted_number_of_parameters(preset, millions):
    """With one vocabulary of 37,000 for both sides."""
    config = TranslatorConfig(**TRANSLATION[preset]["model"]["transformer"])
    with torch.device("meta"):
        model = Translator(config, Vocabularies(37_000, 37_000, joint=True))
    assert sum(value.numel() for value in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize("preset", TRANSLATION)
def test_every_preset_builds_and_runs(preset):
    config = TranslatorConfig(**TRANSLATION[preset]["model"]["transformer"])
    with torch.device("meta"):
        model = Translator(config, Vocabularies(100, 90))
        keep = torch.ones(2, 6, dtype=torch.bool)
        logits = model(torch.zeros(2, 6, dtype=torch.long), keep, torch.zeros(2, 4, dtype=torch.long))
    assert logits.shape == (2, 4, 90)
    assert (model.head.weight is model.target.weight) == config.tie_embeddings


def test_a_tie_is_one_tensor_with_the_source_only_where_the_vocabulary_is_joint():
    apart, joint = (build(CASES["tied"], SIZES[name]) for name in ("apart", "joint"))
    assert apart.head.weight is apart.target.weight and apart.source.weight is not apart.target.weight
    assert joint.head.weight is joint.target.weight is joint.source.weight
    free = build(CASES["transformer"], SIZES["joint"])
    assert len({id(table.weight) for table in (free.head, free.target, free.source)}) == 3


@pytest.mark.parametrize(("name", "count"), [("rnn", 0), ("additive", 1), ("convolution", 2), ("transformer", 6)])
def test_an_architecture_has_the_expected_number_of_attention_layers(name, count):
    assert sum(isinstance(module, Attention) for module in make(name).modules()) == count


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (RecurrentConfig, {"hidden": 0}, "hidden must be at least 1, but is 0"),
        (RecurrentConfig, {"dropout": 1.0}, "dropout must be at least 0 and below 1, but is 1.0"),
        (ConvolutionConfig, {"kernel_size": 4}, "kernel_size must be odd, but is 4"),
        (ConvolutionConfig, {"dim": 7}, "dim must be even, but is 7"),
        (ConvolutionConfig, {"depth": 0}, "depth must be at least 1, but is 0"),
        (TranslatorConfig, {"decoder_depth": 0}, "decoder_depth must be at least 1, but is 0"),
        (
            TranslatorConfig,
            {"embedding_dropout": -0.1},
            "embedding_dropout must be at least 0 and below 1, but is -0.1",
        ),
        (UniversalConfig, {"depth": 0}, "depth must be at least 1, but is 0"),
        (UniversalConfig, {"threshold": 1.0}, "threshold must be above 0 and below 1, but is 1.0"),
        (UniversalConfig, {"ponder": -1.0}, "ponder must be 0 or more, but is -1.0"),
    ],
)
def test_invalid_configs_are_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind(**settings)


def test_dropout_acts_in_training_only():
    for name in ("additive", "convolution", "transformer", "universal"):
        model, (source, keep, ids) = make(name), some()
        with torch.no_grad():
            logits = model(source, keep, ids)
            assert torch.equal(logits, model(source, keep, ids))
            assert not torch.allclose(logits, nn.Module.train(model)(source, keep, ids))
