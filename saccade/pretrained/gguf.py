"""GGUF: models of the Llama family from the files of llama.cpp, their numbers as float32 again."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.config import from_json
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.vocabularies import CUTS, byte_pairs, merge
from saccade.errors import UsageError
from saccade.pretrained.gguf_header import Entry, Header, read_header, refusal
from saccade.pretrained.huggingface import llama
from saccade.pretrained.huggingface.family import Family
from saccade.pretrained.huggingface.parts import Part
from saccade.pretrained.huggingface.reading import Foreign, assemble, check_sizes
from saccade.pretrained.huggingface.strict import short

FAMILIES = {"llama": llama.LLAMA, "qwen2": llama.QWEN2}
KINDS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL")
SIZES = {  # the settings of a config.json, by the keys of a GGUF file
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "feed_forward_length": "intermediate_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "context_length": "max_position_embeddings",
}
NAMES = {
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
CONTROL, DEFINED = 3, 4  # kinds of tokens that are never made by merges


@dataclass(frozen=True)
class Opened:
    """A language model of one file: its network, its tokenizer, and what belongs around a text."""

    foreign: Foreign
    tokenizer: Tokenizer
    begin: int | None
    """the id that stands before every text, if one must"""
    end: int | None
    """the id that ends a text"""
    template: str
    """how a conversation is written down, as text that nothing here runs"""
    target: Tokenizer | None = None
    """the tokenizer of what is written, where it is another one"""


class Stored:
    """The tensors of a GGUF file by the names of Hugging Face; each is made float32 when it is asked for."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.where: dict[str, Entry] = {}
        ends: list[tuple[int, int, str]] = []
        for name, entry in header.tensors.items():
            size = _bytes(header.path, name, entry)
            ends.append((entry.start, entry.start + size, name))
            self.where[_renamed(name)] = entry
        for (_, end, name), (start, _, after) in zip(sorted(ends), sorted(ends)[1:], strict=False):
            if start < end:
                raise refusal(header.path, f"tensors must not overlap, but {name!r} and {after!r} do")
        beyond = next((name for _, end, name in ends if end > header.size), None)
        if beyond is not None:
            raise refusal(header.path, f"tensors must be within its {header.size:,} bytes, but {beyond!r} is not")

    @property
    def names(self) -> Set[str]:
        return self.where.keys()

    def get(self, name: str) -> Tensor:
        """A tensor in float32."""
        library, entry = _library(), self.where[name]
        kind = library.GGMLQuantizationType(entry.kind)
        block, width = library.GGML_QUANT_SIZES[kind]
        rows, row = math.prod(entry.shape[:-1]), entry.shape[-1] // block * width
        try:
            stored = np.memmap(self.header.path, np.uint8, "r", entry.start, (rows, row))
            with np.errstate(all="ignore"):  # a scale that is not a number is as harmless as any other weight
                values = np.array(library.dequantize(stored, kind), dtype=np.float32)
        except (OSError, ValueError) as error:
            raise refusal(self.header.path, f"{name!r} must be readable, but is not ({short(error)})") from error
        return torch.from_numpy(values).reshape(entry.shape)

    def outline(self, name: str) -> Tensor:
        """A tensor of that shape without any memory."""
        if name not in self.where:
            raise refusal(self.header.path, f"the tensor '{name}' must be there, but is not")
        return torch.empty(self.where[name].shape, device="meta")


def read_gguf(path: Path) -> Opened:
    """The language model of a GGUF file; everything is checked before memory is taken for it."""
    header = read_header(path)
    _library()
    family, schema = _family(header)
    tokens = _tokens(header)
    vocabulary = {"vocab_size": len(tokens), "tie_word_embeddings": "output.weight" not in header.tensors}
    check_sizes(path, {**schema, **vocabulary})
    try:
        shape = from_json(family.schema, {**schema, **vocabulary})
    except (UsageError, TypeError) as error:
        raise refusal(path, short(error)) from error
    _check_rotation(header, shape)
    tokenizer = _tokenizer(header, tokens)
    reading = replace(family, body=_neighbours) if family.name == "llama" else family
    foreign = assemble(path, reading, shape, Stored(header))
    begin = _number(header, "tokenizer.ggml.bos_token_id", len(tokens))
    return Opened(
        foreign=replace(foreign, family=family),
        tokenizer=tokenizer,
        begin=begin if header.values.get("tokenizer.ggml.add_bos_token") is True else None,
        end=_number(header, "tokenizer.ggml.eos_token_id", len(tokens)),
        template=_text(header, "tokenizer.chat_template") or "",
    )


def _library() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise UsageError("a GGUF file needs the package gguf; install it with `pip install saccade[export]`") from error
    return gguf


def _neighbours(config: Any) -> list[Part]:
    """llama.cpp keeps the rotary pairs of the llama architecture as neighbours, which is our order already."""
    return [replace(part, halves=()) for part in llama.body(config)]


def _family(header: Header) -> tuple[Family, dict[str, Any]]:
    """The family of a file and its sizes as a config.json would say them."""
    kind = _text(header, "general.architecture")
    if kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise refusal(header.path, f"general.architecture must be one of {known}, but is {kind!r:.80}")
    found = {ours: header.values[f"{kind}.{key}"] for key, ours in SIZES.items() if f"{kind}.{key}" in header.values}
    wrong = next((name for name, value in found.items() if isinstance(value, bool | str)), None)
    if wrong is not None:
        raise refusal(header.path, f"{wrong} must be a number, but is {found[wrong]!r:.80}")
    return FAMILIES[kind], found


def _check_rotation(header: Header, schema: Any) -> None:
    """Refuse what changes the network and has no place here: stretched contexts, experts, other widths of heads."""
    kind = header.values["general.architecture"]
    heads = schema.num_attention_heads
    width = schema.hidden_size // heads if heads > 0 else 0
    rules = {
        f"{kind}.rope.dimension_count": (width, None),
        f"{kind}.attention.key_length": (width, None),
        f"{kind}.attention.value_length": (width, None),
        f"{kind}.expert_count": (0, None),
        f"{kind}.attention.sliding_window": (0, None),
        f"{kind}.rope.scaling.type": ("none", None),
    }
    for key, allowed in rules.items():
        if header.values.get(key) not in allowed:
            raise refusal(header.path, f"{key} must be {allowed[0]!r}, but is {header.values[key]!r:.80}")
    if "rope_freqs.weight" in header.tensors:
        raise refusal(header.path, "positions must not be stretched, but rope_freqs.weight says so")


def _tokens(header: Header) -> list[str]:
    found = header.values.get("tokenizer.ggml.tokens")
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        raise refusal(header.path, "tokenizer.ggml.tokens must be a list of texts, but is not")
    if len(set(found)) < len(found):
        raise refusal(header.path, "tokens must be different, but one stands twice")
    return found


def _tokenizer(header: Header, tokens: list[str]) -> Tokenizer:
    """The byte-level tokenizer of the file."""
    path, kind, cut = header.path, _text(header, "tokenizer.ggml.model"), _text(header, "tokenizer.ggml.pre")
    if kind != "gpt2":
        raise refusal(path, f"tokenizer.ggml.model must be 'gpt2' (byte pairs), but is {kind!r:.80}")
    if cut not in CUTS:
        raise refusal(path, f"tokenizer.ggml.pre must be one of {', '.join(CUTS)}, but is {cut!r:.80}")
    merges, kinds = header.values.get("tokenizer.ggml.merges"), header.values.get("tokenizer.ggml.token_type")
    if not isinstance(merges, list) or not all(isinstance(pair, str) for pair in merges[:1]):
        raise refusal(path, "tokenizer.ggml.merges must be a list of texts, but is not")
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise refusal(path, f"tokenizer.ggml.token_type must be a list of {len(tokens):,} numbers, but is not")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return byte_pairs(
        path,
        vocabulary,
        [merge(f"{path}: merge {at:,}", pair, vocabulary) for at, pair in enumerate(merges, start=1)],
        [token for token, found in zip(tokens, kinds, strict=True) if found == CONTROL],
        whole=[token for token, found in zip(tokens, kinds, strict=True) if found == DEFINED],
        cut=cut,
        spaced=header.values.get("tokenizer.ggml.add_space_prefix") is True,
    )


def _text(header: Header, key: str) -> str | None:
    found = header.values.get(key)
    if found is not None and not isinstance(found, str):
        raise refusal(header.path, f"{key} must be a text, but is {found!r:.80}")
    return found


def _number(header: Header, key: str, below: int) -> int | None:
    found = header.values.get(key)
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < below:
        raise refusal(header.path, f"{key} must be a token from 0 to {below - 1:,}, but is {found!r:.80}")
    return found


def _renamed(name: str) -> str:
    """A name of llama.cpp as Hugging Face has it; one that is not known stays."""
    parts = name.split(".")
    if parts[0] == "blk" and len(parts) == 4 and parts[2] in NAMES:
        return f"model.layers.{parts[1]}.{NAMES[parts[2]]}.{parts[3]}"
    return f"{NAMES[parts[0]]}.{parts[1]}" if len(parts) == 2 and parts[0] in NAMES else name


def _bytes(path: Path, name: str, entry: Entry) -> int:
    """How many bytes a tensor takes in the file."""
    library = _library()
    kinds = {int(library.GGMLQuantizationType[kind]): kind for kind in KINDS}
    if entry.kind not in kinds:
        raise refusal(path, f"{name!r} must be of one of the kinds {', '.join(KINDS)}, but is of kind {entry.kind}")
    block, width = library.GGML_QUANT_SIZES[library.GGMLQuantizationType(entry.kind)]
    if entry.shape[-1] % block:
        raise refusal(path, f"a row of {name!r} must be a multiple of {block}, but is {entry.shape[-1]:,}")
    return math.prod(entry.shape) // int(block) * int(width)
