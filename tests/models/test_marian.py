"""Translator equals Marian of transformers: tiny random models, their weights in ours, the same logits and outputs.

Marian is the Transformer of 2017: sinusoidal positions (sines first), norms after each block, one embedding for source,
target and output, multiplied by sqrt(dim). It starts a target with its padding token.
"""

import pytest
import torch

from saccade.decode.search import Search, search
from saccade.models.presets import TRANSLATION
from saccade.models.seq2seq.interface import DecoderState, Vocabularies
from saccade.models.seq2seq.transformer import Translator, TranslatorConfig

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

VOCABULARY, PAD, END, MAX_LENGTH = 30, 29, 0, 14
KEEP = torch.arange(9) < torch.tensor([9, 6, 3, 8, 5, 7, 9, 4])[:, None]
SOURCE = torch.randint(1, PAD, (8, 9), generator=torch.Generator().manual_seed(2)).masked_fill(~KEEP, PAD)


def marian(activation, *, sharpness=0.35):
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY,
        d_model=24,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=40,
        decoder_ffn_dim=40,
        activation_function=activation,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,  # ours never forces the end: a truncated output is marked as such
        max_position_embeddings=64,
        max_length=None,
    )
    torch.manual_seed(5)
    model = transformers.MarianMTModel(config).eval()
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            torch.nn.init.normal_(parameter, mean=1.0 if "norm.weight" in name else 0.0, std=sharpness)
    # transformers never generates padding; ours has no such rule, so the model itself must not predict it.
    model.final_logits_bias.zero_()
    return model


def copy(ours, theirs):
    assert ours.weight.shape == theirs.weight.shape
    ours.weight.data.copy_(theirs.weight)
    ours.bias.data.copy_(theirs.bias)


def stacked(ours, *theirs):
    ours.weight.data.copy_(torch.cat([linear.weight for linear in theirs]))
    ours.bias.data.copy_(torch.cat([linear.bias for linear in theirs]))


def translator(theirs, activation):
    """Return our Translator with the weights of a Marian model."""
    published = TRANSLATION["base"]["model"]["transformer"]
    shape = {"dim": 24, "depth": 2, "decoder_depth": 3, "heads": 4, "hidden": 40, "activation": activation}
    ours = Translator(TranslatorConfig(**{**published, **shape}), Vocabularies(VOCABULARY, VOCABULARY, joint=True))
    ours.target.weight.data.copy_(theirs.model.shared.weight)
    for mine, other in ((ours.encoder, theirs.model.encoder), (ours.decoder, theirs.model.decoder)):
        for index, block in enumerate(other.layers):
            layer, own = mine.get_submodule(str(index)), block.self_attn
            stacked(layer.self.qkv, own.q_proj, own.k_proj, own.v_proj)
            copy(layer.self.out, own.out_proj)
            copy(layer.self_residual.norm, block.self_attn_layer_norm)
            if layer.cross is not None:
                across = block.encoder_attn
                copy(layer.cross.q, across.q_proj)
                stacked(layer.cross.kv, across.k_proj, across.v_proj)
                copy(layer.cross.out, across.out_proj)
                copy(layer.cross_residual.norm, block.encoder_attn_layer_norm)
            copy(layer.feed.up, block.fc1)
            copy(layer.feed.down, block.fc2)
            copy(layer.feed_residual.norm, block.final_layer_norm)
    return ours.eval()


@pytest.mark.parametrize(("theirs", "ours"), [("swish", "silu"), ("relu", "relu"), ("gelu", "gelu")])
@torch.no_grad()
def test_the_logits_are_those_of_marian(theirs, ours):
    reference = marian(theirs)
    model = translator(reference, ours)
    ids = torch.randint(1, PAD, (8, 7))
    expected = reference(input_ids=SOURCE, attention_mask=KEEP.long(), decoder_input_ids=ids).logits
    torch.testing.assert_close(model(SOURCE, KEEP, ids), expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-5)
    assert expected.std() > 1


@pytest.fixture(scope="module")
def pair():
    """A Marian model and its translator that never generate the padding token and often the end."""
    reference = marian("swish")
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if "attn" in name and "norm" not in name:
                parameter *= 3  # sharp attention: outputs depend on the source
        # The decoder ends on a norm, so a constant feature can be added: its bias decides how likely these two are.
        last = reference.model.decoder.layers[-1].final_layer_norm
        last.weight[0], last.bias[0] = 0.0, 1.0
        reference.model.shared.weight[:, 0] = 0.0
        reference.model.shared.weight[PAD, 0], reference.model.shared.weight[END, 0] = -9.0, 4.5
    return reference, translator(reference, "silu")


@torch.no_grad()
def generated(reference, **settings):
    """Return the outputs of transformers without start and end tokens, and their scores."""
    output = reference.generate(
        input_ids=SOURCE,
        attention_mask=KEEP.long(),
        max_new_tokens=MAX_LENGTH,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    rows = [row[1:] for row in output.sequences.tolist()]
    return [tuple(row[: row.index(END)] if END in row else row) for row in rows], output


def searched(model, settings):
    memory = model.encode(SOURCE, KEEP)
    state = DecoderState(model, memory, MAX_LENGTH + 1)
    return search(state, [MAX_LENGTH] * len(SOURCE), start_id=PAD, end_id=END, settings=settings)


@torch.no_grad()
def test_greedy_output_is_that_of_marian(pair):
    reference, model = pair
    expected, _ = generated(reference, num_beams=1)
    outputs = [answers[0].ids for answers in searched(model, Search(beam=1))]
    assert outputs == expected
    assert len(set(outputs)) > 3 and {len(ids) for ids in outputs} - {MAX_LENGTH}


@pytest.mark.parametrize("penalty", [1.0, 0.6, 2.0])
@torch.no_grad()
def test_beam_search_is_between_the_two_rules_of_transformers(pair, penalty):
    """Beams, candidates and scores are the same; only the moment to stop differs.

    early_stopping=True stops as soon as four outputs are finished, however poor; False goes on as long as anything
    could push out the worst of them. Ours stops when four are finished and none that is being written scores better
    than the answer. So ours is at least as good as the first, at most as good as the second, equal where they agree.
    """
    reference, model = pair
    settings = {"num_beams": 4, "length_penalty": penalty, "num_return_sequences": 1}
    early, early_scores = generated(reference, early_stopping=True, **settings)
    late, late_scores = generated(reference, early_stopping=False, **settings)
    ours = [answers[0] for answers in searched(model, Search(beam=4, length_penalty=penalty))]
    agree = 0
    for row, hypothesis in enumerate(ours):
        low, high = float(early_scores.sequences_scores[row]), float(late_scores.sequences_scores[row])
        assert low - 1e-4 <= hypothesis.score <= high + 1e-4
        if early[row] == late[row]:
            agree += 1
            assert hypothesis.ids == early[row]
            assert hypothesis.score == pytest.approx(low, abs=1e-4)
    assert agree >= 4


@torch.no_grad()
def test_beams_differ_from_greedy_and_are_more_likely(pair):
    """Otherwise the tests above would prove little."""
    _, model = pair
    greedy = [answers[0] for answers in searched(model, Search(beam=1, length_penalty=0.0))]
    beams = [answers[0] for answers in searched(model, Search(beam=4, length_penalty=0.0))]
    assert [one.ids for one in greedy] != [one.ids for one in beams]
    assert sum(one.score for one in beams) > sum(one.score for one in greedy)
