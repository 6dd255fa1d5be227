"""Tiny random models of transformers, with their tokenizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tokenizers
import torch
import transformers

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
ROWS = 64
WORDS = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{number}" for number in range(50))]


def tokenizer() -> Any:
    """Return a tokenizer of words whose special tokens are those of the models."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, "<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def randomized(model: Any) -> Any:
    torch.manual_seed(1)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "embed_positions" not in name:
                value.normal_(std=0.3)
    return model.eval()


def gpt2() -> Any:
    config = transformers.GPT2Config(vocab_size=ROWS, n_embd=24, n_layer=2, n_head=4, n_positions=40, **IDS)
    return randomized(transformers.GPT2LMHeadModel(config))


def llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=ROWS, **SIZES, num_key_value_heads=2, max_position_embeddings=64, **IDS
    )
    return randomized(transformers.LlamaForCausalLM(config))


def bert() -> Any:
    config = transformers.BertConfig(vocab_size=ROWS, **SIZES, max_position_embeddings=40, **IDS)
    return randomized(transformers.BertForMaskedLM(config))


def t5() -> Any:
    sizes = {"d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(vocab_size=ROWS, **sizes, **IDS, decoder_start_token_id=0)
    return randomized(transformers.T5ForConditionalGeneration(config))


def marian() -> Any:
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in
             (("layers", 2), ("attention_heads", 2), ("ffn_dim", 24))}  # fmt: skip
    config = transformers.MarianConfig(
        vocab_size=ROWS, d_model=16, **sides, max_position_embeddings=64, **IDS, decoder_start_token_id=0,
        forced_eos_token_id=None,
    )  # fmt: skip
    return randomized(transformers.MarianMTModel(config))


MODELS: dict[str, Callable[[], Any]] = {"GPT-2": gpt2, "Llama": llama, "BERT": bert, "T5": t5, "Marian": marian}
