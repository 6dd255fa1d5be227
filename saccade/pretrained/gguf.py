"""GGUF: Llama-family models from files of llama.cpp, dequantized to float32."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.config import from_json
from saccade.core import Pretrained
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.vocabularies import PRE_TOKENIZERS, byte_level_bpe, parse_merge, surround
from saccade.errors import UsageError
from saccade.pretrained.config_json import check_sizes
from saccade.pretrained.families import FAMILIES, Family
from saccade.pretrained.families.mapping import WeightMapping
from saccade.pretrained.gguf_header import Header, TensorEntry, read_header, refusal, unsupported
from saccade.pretrained.processors import TextProcessor
from saccade.pretrained.strict_json import one_line
from saccade.pretrained.weights import load_network

ARCHITECTURES = ("llama", "qwen2")
INTERLEAVED = ("llama",)  # architectures whose q and k llama.cpp stores with interleaved rotary pairs, as we do
TENSOR_TYPES = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"),
)
CONFIG_FIELDS = {  # fields of config.json by the keys of a GGUF file
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "feed_forward_length": "intermediate_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "context_length": "max_position_embeddings",
}
TENSOR_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL, USER_DEFINED = 3, 4  # types of tokens that merges never produce


class GGUFTensors:
    """The tensors of a GGUF file by their names in transformers; each is dequantized on demand."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.entries: dict[str, TensorEntry] = {}
        ranges: list[tuple[int, int, str]] = []
        for name, entry in header.tensors.items():
            size = _byte_size(header.path, name, entry)
            ranges.append((entry.start, entry.start + size, name))
            self.entries[_hf_name(name)] = entry
        for (_, end, name), (start, _, next_name) in zip(sorted(ranges), sorted(ranges)[1:], strict=False):
            if start < end:
                raise refusal(header.path, f"tensors must not overlap, but {name!r} and {next_name!r} do")
        outside = next((name for _, end, name in ranges if end > header.size), None)
        if outside is not None:
            raise refusal(header.path, f"tensors must be within its {header.size:,} bytes, but {outside!r} is not")

    @property
    def names(self) -> Set[str]:
        return self.entries.keys()

    def get(self, name: str) -> Tensor:
        """Return a tensor in float32."""
        library, entry = _library(), self.entries[name]
        tensor_type = library.GGMLQuantizationType(entry.type)
        block_size, block_bytes = library.GGML_QUANT_SIZES[tensor_type]
        rows, row_bytes = math.prod(entry.shape[:-1]), entry.shape[-1] // block_size * block_bytes
        try:
            raw = np.memmap(self.header.path, np.uint8, "r", entry.start, (rows, row_bytes))
            with np.errstate(all="ignore"):  # a NaN in a scale is as harmless as any other weight
                values = np.array(library.dequantize(raw, tensor_type), dtype=np.float32)
        except (OSError, ValueError) as error:
            raise refusal(self.header.path, f"{name!r} must be readable, but is not ({one_line(error)})") from error
        return torch.from_numpy(values).reshape(entry.shape)

    def meta(self, name: str) -> Tensor:
        """Return a tensor of the same shape on the meta device."""
        if name not in self.entries:
            raise unsupported(self.header.path, f"the tensor '{name}' is missing")
        return torch.empty(self.entries[name].shape, device="meta")


def read_gguf(path: Path) -> tuple[Pretrained, tuple[str, ...]]:
    """Read a GGUF file; return the model and the names of the tensors that it does not use.

    Everything is checked before memory is allocated for it.
    """
    header = read_header(path)
    _library()
    family, values = _family(header)
    tokens = _tokens(header)
    values |= {"vocab_size": len(tokens), "tie_word_embeddings": "output.weight" not in header.tensors}
    check_sizes(path, values)
    try:
        fields = from_json(family.fields, values)
    except (UsageError, TypeError) as error:
        raise unsupported(path, one_line(error)) from error
    _check_architecture(header, fields)
    processor = _processor(header, tokens)
    reader = replace(family, body=lambda config: _interleaved(family, config)) if family.name in INTERLEAVED else family
    loaded = load_network(path, reader, fields, GGUFTensors(header))
    return Pretrained(loaded.network, loaded.config, processor, family, loaded.task), loaded.unused


def _library() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise UsageError("a GGUF file needs the package gguf; install it with `pip install saccade[gguf]`") from error
    return gguf


def _interleaved(family: Family, config: Any) -> list[WeightMapping]:
    """Return the weights of a family whose rotary pairs are in our order already."""
    return [replace(mapping, rotary_heads=()) for mapping in family.body(config)]


def _family(header: Header) -> tuple[Family, dict[str, Any]]:
    """Return the family of a file and the fields of its config.json."""
    name = _string(header, "general.architecture")
    if name not in ARCHITECTURES:
        supported = ", ".join(ARCHITECTURES)
        raise unsupported(header.path, f"general.architecture must be one of {supported}, but is {name!r:.80}")
    keys = {field: f"{name}.{key}" for key, field in CONFIG_FIELDS.items()}
    values = {field: header.values[key] for field, key in keys.items() if key in header.values}
    wrong = next((field for field, value in values.items() if isinstance(value, bool | str)), None)
    if wrong is not None:
        raise refusal(header.path, f"{wrong} must be a number, but is {values[wrong]!r:.80}")
    return FAMILIES[name], values


def _check_architecture(header: Header, fields: Any) -> None:
    """Refuse what changes the outputs but is not supported: rope scaling, experts, sliding windows, head sizes."""
    name = header.values["general.architecture"]
    heads = fields.num_attention_heads
    head_dim = fields.hidden_size // heads if heads > 0 else 0
    allowed_values = {
        f"{name}.rope.dimension_count": (head_dim, None),
        f"{name}.attention.key_length": (head_dim, None),
        f"{name}.attention.value_length": (head_dim, None),
        f"{name}.expert_count": (0, None),
        f"{name}.attention.sliding_window": (0, None),
        f"{name}.rope.scaling.type": ("none", None),
    }
    for key, allowed in allowed_values.items():
        if header.values.get(key) not in allowed:
            raise unsupported(header.path, f"{key} must be {allowed[0]!r}, but is {header.values[key]!r:.80}")
    if "rope_freqs.weight" in header.tensors:
        raise unsupported(header.path, "rotary frequencies must not be scaled, but there is a tensor rope_freqs.weight")


def _processor(header: Header, tokens: list[str]) -> TextProcessor:
    bos_id = _token_id(header, "tokenizer.ggml.bos_token_id", len(tokens))
    # Both the end of a text and the end of a turn end generation, as in llama.cpp.
    ends = [_token_id(header, f"tokenizer.ggml.{name}_token_id", len(tokens)) for name in ("eos", "eot")]
    adds_bos = header.values.get("tokenizer.ggml.add_bos_token") is True
    first = tokens[bos_id] if adds_bos and bos_id is not None else None
    return TextProcessor(
        tokenizer=_tokenizer(header, tokens, first),
        bos_id=bos_id,
        eos_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
        chat_template=_string(header, "tokenizer.chat_template") or "",
        parse_special=True,
    )


def _tokens(header: Header) -> list[str]:
    tokens = header.values.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens or not isinstance(tokens[0], str):
        raise refusal(header.path, "tokenizer.ggml.tokens must be a list of strings, but is not")
    if len(set(tokens)) < len(tokens):
        raise refusal(header.path, "tokens must be unique, but one occurs twice")
    return tokens


def _tokenizer(header: Header, tokens: list[str], first: str | None) -> Tokenizer:
    """Return the byte-level tokenizer of the file, which puts the token `first` before each prompt."""
    path, model, split = header.path, _string(header, "tokenizer.ggml.model"), _string(header, "tokenizer.ggml.pre")
    if model != "gpt2":
        raise unsupported(path, f"tokenizer.ggml.model must be 'gpt2' (byte-level BPE), but is {model!r:.80}")
    if split not in PRE_TOKENIZERS:
        raise unsupported(path, f"tokenizer.ggml.pre must be one of {', '.join(PRE_TOKENIZERS)}, but is {split!r:.80}")
    merges, types = header.values.get("tokenizer.ggml.merges"), header.values.get("tokenizer.ggml.token_type")
    if not isinstance(merges, list) or not all(isinstance(pair, str) for pair in merges[:1]):
        raise refusal(path, "tokenizer.ggml.merges must be a list of strings, but is not")
    if not isinstance(types, list) or len(types) != len(tokens):
        raise refusal(path, f"tokenizer.ggml.token_type must be a list of {len(tokens):,} numbers, but is not")
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    return byte_level_bpe(
        path,
        vocabulary,
        [parse_merge(f"{path}: merge {number:,}", pair, vocabulary) for number, pair in enumerate(merges, start=1)],
        [token for token, type_ in zip(tokens, types, strict=True) if type_ == CONTROL],
        added=[token for token, type_ in zip(tokens, types, strict=True) if type_ == USER_DEFINED],
        pre_tokenizer=split,
        template=None if first is None else surround(first),
        add_prefix_space=header.values.get("tokenizer.ggml.add_space_prefix") is True,
    )


def _string(header: Header, key: str) -> str | None:
    value = header.values.get(key)
    if value is not None and not isinstance(value, str):
        raise refusal(header.path, f"{key} must be a string, but is {value!r:.80}")
    return value


def _token_id(header: Header, key: str, vocabulary_size: int) -> int | None:
    value = header.values.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocabulary_size:
        raise refusal(header.path, f"{key} must be a token id from 0 to {vocabulary_size - 1:,}, but is {value!r:.80}")
    return value


def _hf_name(name: str) -> str:
    """Return the name of a tensor in transformers; an unknown name is returned as it is."""
    parts = name.split(".")
    if parts[0] == "blk" and len(parts) == 4 and parts[2] in TENSOR_NAMES:
        return f"model.layers.{parts[1]}.{TENSOR_NAMES[parts[2]]}.{parts[3]}"
    return f"{TENSOR_NAMES[parts[0]]}.{parts[1]}" if len(parts) == 2 and parts[0] in TENSOR_NAMES else name


def _byte_size(path: Path, name: str, entry: TensorEntry) -> int:
    """Return the number of bytes of a tensor in the file."""
    library = _library()
    supported = {int(library.GGMLQuantizationType[type_name]) for type_name in TENSOR_TYPES}
    if entry.type not in supported:
        allowed = ", ".join(TENSOR_TYPES)
        raise unsupported(path, f"{name!r} must be of a type among {allowed}, but is of type {entry.type}")
    block_size, block_bytes = library.GGML_QUANT_SIZES[library.GGMLQuantizationType(entry.type)]
    if entry.shape[-1] % block_size:
        raise refusal(path, f"a row of {name!r} must be a multiple of {block_size}, but is {entry.shape[-1]:,}")
    return math.prod(entry.shape) // int(block_size) * int(block_bytes)
