"""Architectures of llama.cpp: how a GGUF file names the settings and tensors of a family of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saccade.pretrained.families import FAMILIES, Family
from saccade.pretrained.families.mapping import WeightMapping

DECODER_KEYS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "feed_forward_length": "intermediate_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "context_length": "max_position_embeddings",
    "attention.key_length": "head_dim",
}
DECODER_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA3_TENSORS = {
    **DECODER_TENSORS,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
GPT2_KEYS = {
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "attention.head_count": "n_head",
    "feed_forward_length": "n_inner",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
    "context_length": "n_positions",
}
GPT2_TENSORS = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}


@dataclass(frozen=True)
class Architecture:
    """A value of general.architecture."""

    name: str
    interleaved: bool = False
    """q and k are stored with interleaved rotary pairs, as ours are"""
    keys: Mapping[str, str] = field(default_factory=lambda: DECODER_KEYS)
    """fields of config.json by the keys of the file, which start with the name of the architecture"""
    tensors: Mapping[str, str] = field(default_factory=lambda: DECODER_TENSORS)
    """names in transformers by those in the file"""
    layers: str = "model.layers"
    """before the number of a layer in transformers"""
    family_name: str = ""
    """empty: the same"""

    @property
    def published(self) -> Family:
        """The family as transformers stores it."""
        return FAMILIES[self.family_name or self.name]

    @property
    def family(self) -> Family:
        """The family that reads and writes the weights as the file stores them."""
        family = self.published
        return replace(family, body=lambda config: [self._stored(mapping) for mapping in family.body(config)])

    def _stored(self, mapping: WeightMapping) -> WeightMapping:
        """Return a mapping to a matrix (outputs, inputs), to whole gains, and to rotary pairs in the file's order."""
        mapping = replace(mapping, transpose=False, offset=0.0)
        return replace(mapping, rotary_heads=()) if self.interleaved else mapping

    def hf_name(self, name: str) -> str:
        """Return the name of a tensor in transformers; an unknown name is returned as it is."""
        parts = name.split(".")
        if parts[0] == "blk" and len(parts) == 4 and parts[2] in self.tensors:
            return f"{self.layers}.{parts[1]}.{self.tensors[parts[2]]}.{parts[3]}"
        return f"{self.tensors[parts[0]]}.{parts[1]}" if len(parts) == 2 and parts[0] in self.tensors else name

    def gguf_name(self, hf_name: str) -> str:
        """Return the name in the file of a tensor of transformers."""
        names = {theirs: ours for ours, theirs in self.tensors.items()}
        module, _, kind = hf_name.rpartition(".")
        if module in names:
            return f"{names[module]}.{kind}"
        number, _, module = module.removeprefix(f"{self.layers}.").partition(".")
        return f"blk.{number}.{names[module]}.{kind}"

    def values(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of the file from the fields of config.json."""
        return {f"{self.name}.{key}": fields[name] for key, name in self.keys.items()}


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("llama", interleaved=True),
        Architecture("qwen2"),
        Architecture("qwen3"),
        Architecture("smollm3", interleaved=True),
        Architecture(
            "gemma3",
            keys={**DECODER_KEYS, "attention.sliding_window": "sliding_window"},
            tensors=GEMMA3_TENSORS,
            family_name="gemma3_text",
        ),
        Architecture("gpt2", keys=GPT2_KEYS, tensors=GPT2_TENSORS, layers="transformer.h"),
    )
}
