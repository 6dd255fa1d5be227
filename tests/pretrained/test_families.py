"""Families: tiny random models of transformers give the same numbers in ours, read and written."""

import json

import pytest
import torch

from saccade.errors import ModelFileError
from saccade.nn.cache import KVCache
from saccade.pretrained.config_json import read_config
from saccade.pretrained.exports.hf import find_family, write_network
from saccade.pretrained.families import FAMILIES
from saccade.pretrained.opening import read_network

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

VOCABULARY = 61


def randomized(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=0.3)
    for name, module in model.named_modules():  # transformers keeps the row of the padding at 0 and never looks it up
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            module.weight.data[: module.padding_idx + 1] = 0.0
    return model.eval()


def bert(dim, depth, heads, hidden, **options):
    sizes = {"hidden_size": dim, "num_hidden_layers": depth, "num_attention_heads": heads, "intermediate_size": hidden}
    return transformers.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=40, **sizes, **options)


def roberta(dim, depth, heads, hidden, **options):
    sizes = {"hidden_size": dim, "num_hidden_layers": depth, "num_attention_heads": heads, "intermediate_size": hidden}
    return transformers.RobertaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=42, type_vocab_size=1, **sizes, **options
    )


def distilbert(dim, depth, heads, hidden, **options):
    return transformers.DistilBertConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=40,
        dim=dim,
        n_layers=depth,
        n_heads=heads,
        hidden_dim=hidden,
        **options,
    )


ENCODERS = {
    "bert": (bert(24, 3, 4, 40), transformers.BertForPreTraining),
    "bert wide": (bert(30, 1, 3, 17, hidden_act="relu", type_vocab_size=3), transformers.BertForMaskedLM),
    "bert bare": (bert(16, 2, 1, 64, hidden_act="gelu_new", layer_norm_eps=1e-5), transformers.BertModel),
    "roberta": (roberta(24, 2, 4, 40), transformers.RobertaForMaskedLM),
    "roberta bare": (roberta(12, 3, 2, 20, layer_norm_eps=1e-12), transformers.RobertaModel),
    "distilbert": (distilbert(24, 2, 4, 40), transformers.DistilBertForMaskedLM),
    "distilbert bare": (distilbert(10, 1, 5, 12, activation="relu"), transformers.DistilBertModel),
}
GPT2 = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": None}
LLAMA = {**GPT2, "pad_token_id": None, "max_position_embeddings": 64}


def llama(kind, dim, depth, heads, kv_heads, hidden, **options):
    return kind(
        hidden_size=dim,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=hidden,
        **LLAMA,
        **options,
    )


DECODERS = {
    "gpt2": (
        transformers.GPT2Config(n_embd=24, n_layer=3, n_head=4, n_positions=32, **GPT2),
        transformers.GPT2LMHeadModel,
    ),
    "gpt2 odd": (
        transformers.GPT2Config(
            n_embd=10, n_layer=1, n_head=5, n_inner=7, n_positions=20, activation_function="relu", **GPT2
        ),
        transformers.GPT2LMHeadModel,
    ),
    "llama": (
        llama(transformers.LlamaConfig, 24, 2, 4, 2, 40, tie_word_embeddings=False),
        transformers.LlamaForCausalLM,
    ),
    "llama tied": (
        llama(transformers.LlamaConfig, 36, 3, 3, 1, 20, tie_word_embeddings=True, rms_norm_eps=1e-5),
        transformers.LlamaForCausalLM,
    ),
    "llama theta": (
        llama(
            transformers.LlamaConfig,
            32,
            1,
            4,
            4,
            24,
            tie_word_embeddings=False,
            rope_parameters={"rope_theta": 500.0, "rope_type": "default"},
        ),
        transformers.LlamaForCausalLM,
    ),
    "qwen2": (
        llama(transformers.Qwen2Config, 24, 2, 4, 2, 40, tie_word_embeddings=True),
        transformers.Qwen2ForCausalLM,
    ),
}
IDS = torch.randint(2, VOCABULARY, (3, 12), generator=torch.Generator().manual_seed(2))
KEEP = torch.arange(12) < torch.tensor([[12], [7], [1]])


def assert_close(ours, theirs, keep=None):
    if keep is not None:
        ours, theirs = ours[keep], theirs[keep]
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def family_of(folder):
    return read_config(folder)[0]


def compare_encoder(theirs, folder):
    loaded = read_network(folder)
    model, bert = loaded.network, loaded.network.bert
    segments = None
    extra = {}
    if bert.config.segments > 1:
        segments = torch.randint(bert.config.segments, IDS.shape, generator=torch.Generator().manual_seed(3))
        extra = {"token_type_ids": segments}
    with torch.no_grad():
        expected = theirs(IDS.where(KEEP, 1), attention_mask=KEEP.long(), output_hidden_states=True, **extra)
        states = []
        last = bert(IDS.where(KEEP, 1), KEEP, segments, states=states)
        for state, expected_state in zip(states, expected.hidden_states, strict=True):
            assert_close(state, expected_state, KEEP)
        assert_close(last, states[-1])
        if model.mlm is not None:
            logits = expected.prediction_logits if "prediction_logits" in expected else expected.logits
            assert_close(model.mlm(last), logits, KEEP)
        if model.next_sentence is not None:
            assert_close(model.next_sentence(bert.pooled(last)), expected.seq_relationship_logits)
        elif bert.pooler is not None:
            assert_close(bert.pooled(last), expected.pooler_output)
    return loaded


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_has_the_hidden_states_and_logits_of_transformers_and_is_written_back(name, tmp_path):
    config, kind = ENCODERS[name]
    theirs = randomized(kind(config))
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = compare_encoder(theirs, tmp_path / "theirs")
    assert loaded.unused == ()
    assert loaded.task == ("sentence_vectors" if name.endswith("bare") else "masked_language_model")
    write_network(loaded.network, loaded.config, family_of(tmp_path / "theirs"), tmp_path / "ours")
    again, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    for name, value in again.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], atol=0, rtol=0)
    compare_encoder(again.eval(), tmp_path / "ours")


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_has_the_logits_of_transformers_and_is_written_back(name, tmp_path):
    config, kind = DECODERS[name]
    theirs = randomized(kind(config))
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = read_network(tmp_path / "theirs")
    with torch.no_grad():
        expected = theirs(IDS, output_hidden_states=True)
        assert_close(loaded.network(IDS), expected.logits)
        cache = KVCache(12)
        steps = [loaded.network(part, cache=cache) for part in IDS.split([5, 1, 6], dim=1)]
        assert_close(torch.cat(steps, dim=1), expected.logits)
    assert loaded.unused == ()
    write_network(loaded.network, loaded.config, family_of(tmp_path / "theirs"), tmp_path / "ours")
    again, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    for name, value in again.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], atol=0, rtol=0)
    with torch.no_grad():
        assert_close(again.eval()(IDS).logits, expected.logits)


@pytest.mark.parametrize(
    ("dim", "layers", "heads", "hidden", "act"), [(24, (2, 2), 4, 40, "swish"), (12, (1, 3), 2, 16, "relu")]
)
def test_marian_has_the_logits_of_transformers_and_is_written_back(dim, layers, heads, hidden, act, tmp_path):
    sizes = {f"{side}_attention_heads": heads for side in ("encoder", "decoder")}
    sizes |= {f"{side}_ffn_dim": hidden for side in ("encoder", "decoder")}
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY,
        d_model=dim,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        activation_function=act,
        scale_embedding=True,
        max_position_embeddings=32,
        pad_token_id=VOCABULARY - 1,
        eos_token_id=0,
        bos_token_id=None,
        decoder_start_token_id=VOCABULARY - 1,
        forced_eos_token_id=None,
        **sizes,
    )
    theirs = randomized(transformers.MarianMTModel(config))
    positions = transformers.MarianMTModel(config).state_dict()  # these are computed, not learned
    with torch.no_grad():
        for name, value in theirs.state_dict().items():
            if "embed_positions" in name:
                value.copy_(positions[name])
        theirs.final_logits_bias.normal_()
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = read_network(tmp_path / "theirs")
    written = torch.randint(2, VOCABULARY - 1, (3, 7), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        expected = theirs(IDS.clamp_max(VOCABULARY - 2), attention_mask=KEEP.long(), decoder_input_ids=written).logits
        assert_close(loaded.network(IDS.clamp_max(VOCABULARY - 2), KEEP, written), expected)
    assert loaded.unused == ()
    family = family_of(tmp_path / "theirs")
    write_network(loaded.network, loaded.config, family, tmp_path / "ours", {"pad_token_id": 60})
    again = transformers.MarianMTModel.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        logits = again(IDS.clamp_max(VOCABULARY - 2), attention_mask=KEEP.long(), decoder_input_ids=written).logits
        assert_close(logits, expected)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_shards_and_half_precision_are_read(name, tmp_path):
    config, kind = {**ENCODERS, **DECODERS}[name]
    theirs = randomized(kind(config)).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path, max_shard_size="5KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    model = read_network(tmp_path).network
    assert all(value.dtype == torch.float32 for value in model.parameters())
    table = model.bert.embedding.weight if name == "bert" else model.embedding.weight
    assert torch.equal(table, theirs.get_input_embeddings().weight.float())


def test_tensors_without_a_parameter_are_reported(tmp_path):
    transformers.BertForSequenceClassification(bert(24, 1, 4, 40)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": ["BertModel"]}))
    loaded = read_network(tmp_path)
    assert loaded.unused == ("classifier.bias", "classifier.weight")
    assert loaded.network.mlm is None and loaded.config.pooler


def test_the_families_are_registered_by_model_type():
    assert sorted(FAMILIES) == [
        *("bert", "clip", "deit", "distilbert", "efficientnet_lite", "gemma3_text", "gpt2", "llama", "marian"),
        *("mistral", "nanochat", "pix2tex", "qwen2", "qwen3", "roberta", "siglip", "smollm3", "vit", "whisper"),
    ]
    assert all(name == family.name for name, family in FAMILIES.items())


def test_unknown_fields_of_a_config_are_ignored(tmp_path):
    transformers.BertModel(bert(24, 1, 4, 40)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "torchscript": True, "custom_pipelines": {"a": "b"}}))
    assert read_network(tmp_path).config.dim == 24


@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS])
def test_export_finds_a_family_that_holds_the_network_exactly(name, tmp_path):
    config, kind = {**ENCODERS, **DECODERS}[name]
    kind(config).save_pretrained(tmp_path)
    loaded, family = read_network(tmp_path), family_of(tmp_path)
    assert find_family(loaded.network, loaded.config, family) is family
    expected = "bert" if name.startswith("roberta") else family.name  # the same network, with other position numbers
    assert find_family(loaded.network, loaded.config).name == expected


def test_an_encoder_without_a_head_needs_no_tied_embeddings(tmp_path):
    transformers.BertModel(bert(24, 1, 4, 40)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tie_word_embeddings": False}))
    assert read_network(tmp_path).task == "sentence_vectors"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["roberta", "gpt2", "llama"])
def test_weights_that_are_not_finite_are_refused_by_name(name, value, tmp_path):
    config, kind = {**ENCODERS, **DECODERS}[name]
    model = kind(config)
    tensor = list(model.state_dict())[7]
    with torch.no_grad():
        model.state_dict()[tensor].view(-1)[3] = value
    model.save_pretrained(tmp_path)
    with pytest.raises(ModelFileError, match=rf"the tensor '{tensor}' must be finite, but has NaN or infinite values"):
        read_network(tmp_path)


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        ("bert", {"hidden_act": "tanh"}, "the activation must be one of .*, but is 'tanh'"),
        ("roberta", {"pad_token_id": 3}, "pad_token_id must be 1, but is 3"),
        ("bert", {"num_attention_heads": 5}, "dim must be a multiple of heads"),
        ("bert", {"hidden_size": 1 << 30}, "hidden_size must be from 0 to 65,536, but is 1,073,741,824"),
        ("gpt2", {"n_embd": "24"}, "n_embd must be int, but is '24'"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type must be"),
    ],
)
def test_what_is_not_supported_is_not_called_damaged(name, changes, field, tmp_path):
    config, kind = {**ENCODERS, **DECODERS}[name]
    kind(config).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ModelFileError, match=rf"{field}.*not supported$") as caught:
        read_network(tmp_path)
    assert "again" not in str(caught.value)
