"""GGUF files: same logits and tokens as the original model; unsupported or damaged files are refused."""

import struct
import sys

import numpy as np
import pytest
import torch

from saccade.data.text.alphabets import BYTES
from saccade.errors import ModelFileError, UsageError
from saccade.pretrained import gguf_header
from saccade.pretrained.exports.hf import write_network
from saccade.pretrained.gguf import GGUFTensors, read_gguf
from saccade.pretrained.gguf_architectures import ARCHITECTURES
from saccade.pretrained.gguf_header import read_header

gguf = pytest.importorskip("gguf", reason="reads and writes these files; installed with the [gguf] extra")
transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

TOKENS = ["<|endoftext|>", "<|im_start|>", "<tool>", *BYTES, "12", "Ġa", "Ġan"]
KINDS = [3, 3, 4] + [1] * (len(TOKENS) - 3)
MERGES = ["1 2", "Ġ a", "Ġa n"]
NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
NAMES |= {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
NAMES |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
TOP |= {"lm_head.weight": "output.weight"}


def random_model(kind="llama", **options):
    """A tiny random model of transformers."""
    config = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config}[kind](
        vocab_size=len(TOKENS),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=96,
        max_position_embeddings=48,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        rope_parameters={"rope_theta": 5000.0, "rope_type": "default"},
        **{"tie_word_embeddings": True, **options},
    )
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=0.2)
    return model


def gguf_name(name):
    if name in TOP:
        return TOP[name]
    parts = name.split(".")
    return f"blk.{parts[2]}.{NAMES[parts[-2]]}.{parts[-1]}"


def permuted(value, heads):
    """The rows of q and k as llama.cpp's converter orders them for the llama architecture."""
    return value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


def save(path, model, *, quantized=None, values=None, without=()):
    """A model as a GGUF file; `values` adds or replaces keys, `without` omits some."""
    config, kind = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, kind)
    metadata = {
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "feed_forward_length": config.intermediate_size,
        "context_length": config.max_position_embeddings,
    }
    metadata = {f"{kind}.{name}": value for name, value in metadata.items()}
    metadata |= {f"{kind}.attention.layer_norm_rms_epsilon": config.rms_norm_eps, f"{kind}.rope.freq_base": 5000.0}
    metadata |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.eos_token_id": 0}
    metadata |= {"tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.token_type": KINDS, "tokenizer.ggml.merges": MERGES}
    metadata |= {"tokenizer.chat_template": "{{ messages }}", **(values or {})}
    for name, value in metadata.items():
        if name not in without:
            put(writer, name, value)
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        data = value.float().numpy()
        if kind == "llama" and ("q_proj" in name or "k_proj" in name):
            data = permuted(data, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        if gguf_name(name) in without:
            continue
        if quantized is not None and data.ndim == 2:
            writer.add_tensor(gguf_name(name), gguf.quantize(data, quantized), raw_dtype=quantized)
        else:
            writer.add_tensor(gguf_name(name), np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def put(writer, name, value):
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    else:
        writer.add_array(name, value)


def processor_of(path):
    return read_gguf(path)[0].processor


IDS = torch.randint(3, len(TOKENS), (2, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_logits_are_those_of_the_original_model(kind, tied, tmp_path):
    theirs = random_model(kind, tie_word_embeddings=tied)
    pretrained, unused = read_gguf(save(tmp_path / "a.gguf", theirs))
    with torch.no_grad():
        torch.testing.assert_close(pretrained.network(IDS), theirs(IDS).logits, atol=1e-4, rtol=1e-4)
    assert unused == () and pretrained.config.tie_embeddings is tied
    assert (pretrained.family.name, pretrained.task) == (kind, "language_model")
    processor = pretrained.processor
    assert (processor.eos_ids, processor.bos_id, processor.chat_template) == ((0,), None, "{{ messages }}")
    write_network(pretrained.network, pretrained.config, pretrained.family, tmp_path / "out")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        torch.testing.assert_close(again(IDS).logits, theirs(IDS).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_quantized_tensors_are_dequantized_as_by_the_library(name, tmp_path):
    kind = gguf.GGMLQuantizationType[name]
    path = save(tmp_path / "a.gguf", random_model(), quantized=kind)
    tensors = GGUFTensors(read_header(path), ARCHITECTURES["llama"])
    expected = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}["blk.1.ffn_up.weight"]
    assert expected.tensor_type == kind
    tensor = tensors.get("model.layers.1.mlp.up_proj.weight")
    assert tensor.shape == (96, 64) and tensor.dtype == torch.float32
    assert np.array_equal(tensor.numpy(), gguf.dequantize(expected.data, kind))


def test_the_tokenizer_splits_digits_and_keeps_its_special_tokens(tmp_path):
    processor = processor_of(save(tmp_path / "a.gguf", random_model(), values={"tokenizer.ggml.add_bos_token": True}))
    assert processor.bos_id is None  # the file has no such token
    tokenizer = processor.tokenizer
    assert tokenizer.specials == {"<|endoftext|>": 0, "<|im_start|>": 1}
    assert [tokenizer.token(number) for number in tokenizer.encode("12 an")] == ["1", "2", "Ġan"]
    assert tokenizer.encode("<tool>") == [2] and tokenizer.encode("<|im_start|>") != [1]
    assert tokenizer.encode("<|im_start|>", parse_special=True) == [1]
    plain = processor_of(save(tmp_path / "b.gguf", random_model(), values={"tokenizer.ggml.pre": "gpt-2"})).tokenizer
    assert [plain.token(number) for number in plain.encode("12")] == ["12"]


def test_the_bos_token_is_used_where_the_file_asks_for_it(tmp_path):
    values = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 1}
    processor = processor_of(save(tmp_path / "a.gguf", random_model(), values=values))
    assert processor.bos_id == 1
    assert processor.encode_prompt("an") == [1, *processor.tokenizer.encode("an")]
    without = processor_of(save(tmp_path / "b.gguf", random_model(), values={"tokenizer.ggml.bos_token_id": 1}))
    assert without.encode_prompt("an") == without.tokenizer.encode("an")
    ends = {"tokenizer.ggml.eos_token_id": 0, "tokenizer.ggml.eot_token_id": 1}
    assert processor_of(save(tmp_path / "c.gguf", random_model(), values=ends)).eos_ids == (0, 1)
    assert without.encode_prompt("an<|im_start|>") == [*without.tokenizer.encode("an"), 1]


UNSUPPORTED = {
    "architecture": (
        {"general.architecture": "gpt2"},
        "general.architecture must be one of llama, qwen2, qwen3, smollm3, gemma3, gpt2, but is 'gpt2'",
    ),
    "pre-tokenizer": (
        {"tokenizer.ggml.pre": "deepseek"},
        "tokenizer.ggml.pre must be one of gpt-2, .* but is 'deepseek'",
    ),
    "tokenizer model": (
        {"tokenizer.ggml.model": "bert"},
        r"tokenizer.ggml.model must be .gpt2. .* or .llama. .*, but is .bert.",
    ),
    "eos": ({"tokenizer.ggml.eos_token_id": 999}, "eos_token_id must be a token id from 0 to 261, but is 999"),
    "rope scaling": (
        {"llama.rope.scaling.type": "yarn"},
        "llama.rope.scaling.type must be 'none' or 'linear', but is 'yarn'",
    ),
    "experts": ({"llama.expert_count": 8}, "llama.expert_count must be 0, but is 8"),
    "head": ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count must be 16, but is 8"),
    "duplicate token": ({"tokenizer.ggml.tokens": ["a"] * len(TOKENS)}, "tokens must be unique, but one occurs twice"),
    "token types": ({"tokenizer.ggml.token_type": [1, 1]}, "must be a list of 262 numbers"),
    "merge": ({"tokenizer.ggml.merges": ["1 2", "x"]}, "merge 2: a merge must be two tokens"),
    "width": ({"llama.feed_forward_length": 97}, "mlp.gate_proj.weight. must have 97 rows, but has 96"),
    "depth": ({"llama.block_count": 5000}, "num_hidden_layers must be from 0 to 500, but is 5,000"),
    "missing layer": ({"llama.block_count": 3}, "'model.layers.2.self_attn.q_proj.weight' is missing"),
    "string": ({"llama.embedding_length": "64"}, "hidden_size must be a number, but is '64'"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_value_is_refused_by_name(name, tmp_path):
    values, message = UNSUPPORTED[name]
    path = tmp_path / "a.gguf"
    if "general.architecture" in values:
        model = random_model()
        save(path, model)
        content = path.read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0gpt2x", 1)
        path.write_bytes(content)
        message = message.replace("'gpt2'", "'gpt2x'")
    else:
        save(path, random_model(), values=values)
    with pytest.raises(ModelFileError, match=message):
        read_gguf(path)


def test_a_missing_tensor_and_a_missing_array_are_named(tmp_path):
    with pytest.raises(ModelFileError, match=r"tensor 'model.norm.weight' is missing"):
        read_gguf(save(tmp_path / "a.gguf", random_model(), without=["output_norm.weight"]))
    with pytest.raises(ModelFileError, match=r"tokenizer.ggml.tokens must be a list of strings"):
        read_gguf(save(tmp_path / "b.gguf", random_model(), without=["tokenizer.ggml.tokens"]))


def test_counts_are_compared_with_the_size_of_the_file(tmp_path):
    path = tmp_path / "a.gguf"
    for counts, message in (
        ((1 << 60, 1), "the number of tensors must be at most 100,000"),
        ((1, 1 << 60), "the number of keys must be at most 10,000"),
        ((0, 1), "byte 24 needs 8 bytes after it, but there are 0"),
    ):
        path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, *counts))
        with pytest.raises(ModelFileError, match=message):
            read_header(path)
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 9, 0, 0))
    with pytest.raises(ModelFileError, match="the version of GGUF must be one of 2, 3, but is 9"):
        read_header(path)


def test_every_truncated_file_is_refused(tmp_path):
    content = save(tmp_path / "a.gguf", random_model()).read_bytes()
    for length in range(0, len(content), len(content) // 40):
        (tmp_path / "truncated.gguf").write_bytes(content[:length])
        with pytest.raises(ModelFileError, match=r"needs .* bytes after it|must be within its"):
            read_gguf(tmp_path / "truncated.gguf")


def test_the_size_of_a_header_is_limited(tmp_path, monkeypatch):
    path = save(tmp_path / "a.gguf", random_model())
    monkeypatch.setattr(gguf_header, "MAX_HEADER_BYTES", 1000)
    with pytest.raises(ModelFileError, match=r"needs .* bytes after it, but there are"):
        read_gguf(path)


def test_a_missing_package_names_the_command_that_installs_it(tmp_path, monkeypatch):
    path = save(tmp_path / "a.gguf", random_model())
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UsageError, match=r"pip install saccade\[gguf\]"):
        read_gguf(path)


def test_the_end_of_a_turn_that_the_template_writes_ends_generation(tmp_path):
    tokens = [*TOKENS[:2], "<|im_end|>", *TOKENS[3:]]
    template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    values = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [3, 3, 3, *KINDS[3:]]}
    values |= {"tokenizer.chat_template": template, "tokenizer.ggml.bos_token_id": 1}
    processor = processor_of(save(tmp_path / "a.gguf", random_model(), values=values))
    assert processor.eos_ids == (0, 2)
    assert processor.special_tokens == {"bos_token": "<|im_start|>", "eos_token": "<|endoftext|>"}
    named = {**values, "tokenizer.ggml.eot_token_id": 2, "tokenizer.chat_template": "{{ messages }}"}
    assert processor_of(save(tmp_path / "b.gguf", random_model(), values=named)).eos_ids == (0, 2)
