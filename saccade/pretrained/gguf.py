"""GGUF: GPT-2 and Llama-family models from files of llama.cpp, dequantized to float32."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.config import from_json
from saccade.core import Pretrained
from saccade.data.text.tokenizer_checks import parse_json
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.vocabularies import PRE_TOKENIZERS, byte_level_bpe, parse_merge, surround
from saccade.errors import UsageError
from saccade.nn.rotary_scaling import RotaryScaling
from saccade.pretrained.config_json import check_sizes
from saccade.pretrained.gguf_architectures import ARCHITECTURES, Architecture
from saccade.pretrained.gguf_header import Header, TensorEntry, read_header, refusal, unsupported
from saccade.pretrained.gguf_sentencepiece import CONTROL, USER_DEFINED, read_sentencepiece
from saccade.pretrained.processors import TextProcessor
from saccade.pretrained.strict_json import one_line
from saccade.pretrained.weights import load_network

TENSOR_TYPES = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"),
)
BIASES = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias"}  # tensors of layers with biases
FREQUENCIES = "rope_freqs.weight"
ROPE_PARAMETERS = "saccade.rope_parameters"  # the settings from which rope_freqs.weight was computed, as JSON
ROLES = {
    **{"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown"},
    **{"sep_token": "seperator", "pad_token": "padding", "cls_token": "cls", "mask_token": "mask"},
}  # keys of special tokens by role; one is misspelt in the format
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|eom_id|>")


class GGUFTensors:
    """The tensors of a GGUF file by their names in transformers; each is dequantized on demand."""

    def __init__(self, header: Header, architecture: Architecture) -> None:
        self.header = header
        self.entries: dict[str, TensorEntry] = {}
        ranges: list[tuple[int, int, str]] = []
        for name, entry in header.tensors.items():
            size = _byte_size(header.path, name, entry)
            ranges.append((entry.start, entry.start + size, name))
            self.entries[architecture.hf_name(name)] = entry
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
        library, entry = gguf_library(), self.entries[name]
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
    gguf_library()
    architecture, values = _architecture(header)
    tokens = _tokens(header)
    tied = "output.weight" not in header.tensors or architecture.name == "gpt2"  # whose copy is compared
    values |= {"vocab_size": len(tokens), "tie_word_embeddings": tied, **_rope_scaling(header, architecture)}
    known = {field.name for field in dataclasses.fields(architecture.published.fields)}
    if architecture.name == "gemma3":  # llama.cpp has no key for it
        values["query_pre_attn_scalar"] = values.get("head_dim", 256)
    values |= {field: name in header.tensors for field, name in BIASES.items() if field in known}
    check_sizes(path, values)
    try:
        fields = from_json(architecture.published.fields, values)
    except (UsageError, TypeError) as error:
        raise unsupported(path, one_line(error)) from error
    _check_architecture(header, values)
    processor = _processor(header, tokens)
    tensors = GGUFTensors(header, architecture)
    loaded = load_network(path, architecture.family, fields, tensors)
    _check_frequencies(tensors, loaded.config)
    unused = tuple(name for name in loaded.unused if name != FREQUENCIES)
    return Pretrained(loaded.network, loaded.config, processor, architecture.published, loaded.task), unused


def gguf_library() -> Any:
    """Return the package gguf, or say how to install it."""
    try:
        import gguf
    except ImportError as error:
        raise UsageError("a GGUF file needs the package gguf; install it with `pip install saccade[gguf]`") from error
    return gguf


def _architecture(header: Header) -> tuple[Architecture, dict[str, Any]]:
    """Return the architecture of a file and the fields of its config.json."""
    name = _string(header, "general.architecture")
    if name not in ARCHITECTURES:
        supported = ", ".join(ARCHITECTURES)
        raise unsupported(header.path, f"general.architecture must be one of {supported}, but is {name!r:.80}")
    architecture = ARCHITECTURES[name]
    keys = {field: f"{name}.{key}" for key, field in architecture.keys.items()}
    values = {field: header.values[key] for field, key in keys.items() if key in header.values}
    wrong = next((field for field, value in values.items() if isinstance(value, bool | str)), None)
    if wrong is not None:
        raise refusal(header.path, f"{wrong} must be a number, but is {values[wrong]!r:.80}")
    return architecture, values


def _check_architecture(header: Header, values: Mapping[str, Any]) -> None:
    """Refuse what changes the outputs but is not supported: experts, sliding windows, head sizes."""
    name = header.values["general.architecture"]
    allowed_values: dict[str, tuple[Any, ...]] = {
        f"{name}.expert_count": (0, None),
    }
    if "sliding_window" not in values:
        allowed_values[f"{name}.attention.sliding_window"] = (0, None)
    if "hidden_size" in values:
        heads = values.get("num_attention_heads", 0)
        head_dim = values.get("head_dim") or (values["hidden_size"] // heads if heads > 0 else 0)
        allowed_values[f"{name}.rope.dimension_count"] = (head_dim, None)
        allowed_values[f"{name}.attention.value_length"] = (head_dim, None)
    for key, allowed in allowed_values.items():
        if header.values.get(key) not in allowed:
            raise unsupported(header.path, f"{key} must be {allowed[0]!r}, but is {header.values[key]!r:.80}")


def _rope_scaling(header: Header, architecture: Architecture) -> dict[str, Any]:
    """Return the fields of config.json that scale rotary frequencies."""
    key = f"{architecture.name}.rope.scaling.type"
    kind, described = header.values.get(key), _string(header, ROPE_PARAMETERS)
    if kind not in (None, "none", "linear"):
        raise unsupported(header.path, f"{key} must be 'none' or 'linear', but is {kind!r:.80}")
    if FREQUENCIES in header.tensors:
        if described is None:
            rule = "rotary frequencies must not be scaled, but there is a tensor rope_freqs.weight"
            raise unsupported(header.path, rule)
        return {"rope_scaling": parse_json(header.path, described)}
    if kind != "linear":
        return {}
    return {"rope_scaling": {"rope_type": "linear", "factor": header.values.get(key.replace("type", "factor"))}}


def _check_frequencies(tensors: GGUFTensors, config: Any) -> None:
    """Refuse factors of rotary frequencies that are not those of the settings beside them."""
    if FREQUENCIES not in tensors.names:
        return
    factors = frequency_factors(config)
    if not torch.allclose(tensors.get(FREQUENCIES), factors, rtol=1e-5):
        rule = f"rope_freqs.weight must follow from {ROPE_PARAMETERS}, but does not"
        raise unsupported(tensors.header.path, rule)


def frequency_factors(config: Any) -> Tensor:
    """Return by what the scaling of a config divides each rotary frequency: (E/2,)."""
    device = torch.device("cpu")
    scaled: Tensor = config.rotary_scaling.frequencies(config.head_width, config.rotary_base, 0, device)
    return RotaryScaling().frequencies(config.head_width, config.rotary_base, 0, device) / scaled


def _processor(header: Header, tokens: list[str]) -> TextProcessor:
    roles = {name: _token_id(header, f"tokenizer.ggml.{key}_token_id", len(tokens)) for name, key in ROLES.items()}
    template = _string(header, "tokenizer.chat_template") or ""
    # Both the end of a text and the end of a turn end generation, as in llama.cpp; not every file names the latter.
    turn_ends = [tokens.index(token) for token in TURN_ENDS if token in template and token in tokens]
    eot = _token_id(header, "tokenizer.ggml.eot_token_id", len(tokens))
    bos_id = roles["bos_token"]
    spaced = header.values.get("tokenizer.ggml.model") == "llama"  # whose default is to add it, as in llama.cpp
    adds_bos = header.values.get("tokenizer.ggml.add_bos_token", spaced) is True
    first = tokens[bos_id] if adds_bos and bos_id is not None else None
    return TextProcessor(
        tokenizer=_tokenizer(header, tokens, first),
        bos_id=bos_id,
        eos_ids=tuple(dict.fromkeys(end for end in (roles["eos_token"], eot, *turn_ends) if end is not None)),
        chat_template=template,
        special_tokens={name: tokens[token] for name, token in roles.items() if token is not None},
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
    """Return the tokenizer of the file, which puts the token `first` before each prompt."""
    path, model, split = header.path, _string(header, "tokenizer.ggml.model"), _string(header, "tokenizer.ggml.pre")
    if model == "llama":
        return read_sentencepiece(header, tokens, first)
    if model != "gpt2":
        rule = "tokenizer.ggml.model must be 'gpt2' (byte-level BPE) or 'llama' (SentencePiece BPE)"
        raise unsupported(path, f"{rule}, but is {model!r:.80}")
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


def _byte_size(path: Path, name: str, entry: TensorEntry) -> int:
    """Return the number of bytes of a tensor in the file."""
    library = gguf_library()
    supported = {int(library.GGMLQuantizationType[type_name]) for type_name in TENSOR_TYPES}
    if entry.type not in supported:
        allowed = ", ".join(TENSOR_TYPES)
        raise unsupported(path, f"{name!r} must be of a type among {allowed}, but is of type {entry.type}")
    block_size, block_bytes = library.GGML_QUANT_SIZES[library.GGMLQuantizationType(entry.type)]
    if entry.shape[-1] % block_size:
        raise refusal(path, f"a row of {name!r} must be a multiple of {block_size}, but is {entry.shape[-1]:,}")
    return math.prod(entry.shape) // int(block_size) * int(block_bytes)
