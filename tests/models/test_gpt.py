"""GPT equals the reference: tiny random models of transformers, their weights in ours, the same logits."""

import pytest
import torch

from saccade.models.presets import GPT as PRESETS
from saccade.models.text.gpt import GPT, GPTConfig

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

IDS = torch.randint(50, (2, 12), generator=torch.Generator().manual_seed(1))


def copy(target, source):
    assert target.shape == source.shape
    target.data.copy_(source)


def test_gpt2_has_the_logits_of_transformers():
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=3, n_embd=24, n_head=4, n_positions=16, vocab_size=50, bos_token_id=None, eos_token_id=None
        )
    ).eval()
    shape = {**PRESETS["gpt2"], "dim": 24, "depth": 3, "heads": 4, "hidden": 96, "max_positions": 16}
    ours = GPT(GPTConfig(**shape), 50).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    body = theirs.transformer
    copy(ours.embedding.weight, body.wte.weight)
    copy(ours.decoder.position.table.weight, body.wpe.weight)
    for index, block in enumerate(body.h):
        layer = ours.decoder.get_submodule(str(index))
        linears = (
            (layer.self.qkv, block.attn.c_attn),
            (layer.self.out, block.attn.c_proj),
            (layer.feed.up, block.mlp.c_fc),
            (layer.feed.down, block.mlp.c_proj),
        )
        for mine, other in linears:  # transformers keeps these matrices the other way round
            copy(mine.weight, other.weight.T)
            copy(mine.bias, other.bias)
        for mine, other in ((layer.self_residual.norm, block.ln_1), (layer.feed_residual.norm, block.ln_2)):
            copy(mine.weight, other.weight)
            copy(mine.bias, other.bias)
    copy(ours.decoder.norm.weight, body.ln_f.weight)
    copy(ours.decoder.norm.bias, body.ln_f.bias)
    with torch.no_grad():
        torch.testing.assert_close(ours(IDS), theirs(IDS).logits, atol=1e-4, rtol=1e-5)


def neighbours(weight, heads):
    """Rows of a Llama q or k matrix, which pairs feature i with i + E/2, in our order of neighbouring pairs."""
    rows, width = weight.shape
    halves = weight.view(heads, 2, rows // heads // 2, width)
    return halves.transpose(1, 2).reshape(rows, width)


def test_llama_has_the_logits_of_transformers():
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=40,
            vocab_size=50,
            rms_norm_eps=1e-6,
            max_position_embeddings=32,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()
    shape = {
        **PRESETS["llama-tiny"],
        "dim": 24,
        "depth": 2,
        "heads": 4,
        "kv_heads": 2,
        "hidden": 40,
        "max_positions": 32,
    }
    ours = GPT(GPTConfig(**shape), 50).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    copy(ours.embedding.weight, theirs.model.embed_tokens.weight)
    for index, block in enumerate(theirs.model.layers):
        layer, attention, feed = ours.decoder.get_submodule(str(index)), block.self_attn, block.mlp
        q, k = neighbours(attention.q_proj.weight, 4), neighbours(attention.k_proj.weight, 2)
        copy(layer.self.qkv.weight, torch.cat((q, k, attention.v_proj.weight)))
        copy(layer.self.out.weight, attention.o_proj.weight)
        copy(layer.feed.up.weight, torch.cat((feed.gate_proj.weight, feed.up_proj.weight)))
        copy(layer.feed.down.weight, feed.down_proj.weight)
        copy(layer.self_residual.norm.weight, block.input_layernorm.weight)
        copy(layer.feed_residual.norm.weight, block.post_attention_layernorm.weight)
    copy(ours.decoder.norm.weight, theirs.model.norm.weight)
    copy(ours.head.weight, theirs.lm_head.weight)
    with torch.no_grad():
        torch.testing.assert_close(ours(IDS), theirs(IDS).logits, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    ("preset", "millions"), [("gpt2", 124.4), ("gpt2-medium", 354.8), ("gpt2-large", 774.0), ("gpt2-xl", 1557.6)]
)
def test_gpt2_presets_have_the_published_number_of_parameters(preset, millions):
    with torch.device("meta"):
        model = GPT(GPTConfig(**PRESETS[preset]), 50257)
    assert sum(value.numel() for value in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_builds_and_runs(preset):
    config = GPTConfig(**PRESETS[preset])
    with torch.device("meta"):
        logits = GPT(config, 100)(torch.zeros(2, 8, dtype=torch.long))
    assert logits.shape == (2, 8, 100)


def test_the_loss_is_computed_inside_the_call_and_ignores_negative_labels():
    model = GPT(GPTConfig(dim=16, depth=2, heads=2, hidden=24, max_positions=16), 50)
    torch.nn.init.normal_(model.head.weight, std=0.3)
    labels = IDS.roll(-1, 1)
    labels[1, 4:] = -1
    logits = model(IDS)
    expected = torch.nn.functional.cross_entropy(logits[labels >= 0], labels[labels >= 0])
    torch.testing.assert_close(model(IDS, labels), expected)
    model(IDS, labels).backward()
    assert all(value.grad is not None for value in model.parameters())
