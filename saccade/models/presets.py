"""Presets: named configurations, as data. Published parameter counts assume each model's published vocabulary."""

from typing import Any

_GPT2: dict[str, Any] = {
    "activation": "gelu_tanh",
    "norm": "layer",
    "position": "learned",
    "score": "scaled_dot",
    "bias": True,
    "tie_embeddings": True,
    "embedding_norm": False,
    "init": "gpt2",
}
_LLAMA: dict[str, Any] = {
    "activation": "swiglu",
    "norm": "rms",
    "position": "rotary",
    "score": "scaled_dot",
    "embedding_norm": False,
}

GPT: dict[str, dict[str, Any]] = {
    "demo": {"dim": 128, "depth": 4, "heads": 2, "hidden": 512, "max_positions": 128},
    "tiny": {"dim": 128, "depth": 4, "heads": 2, "hidden": 512, "max_positions": 64},
    "small": {"dim": 256, "depth": 6, "heads": 4, "hidden": 1024, "max_positions": 256},
    "medium": {"dim": 384, "depth": 6, "heads": 6, "hidden": 1536, "max_positions": 256},
    "llama-tiny": {"dim": 128, "depth": 4, "heads": 4, "kv_heads": 2, "hidden": 344, "max_positions": 256, **_LLAMA},
    "llama-small": {"dim": 384, "depth": 6, "heads": 6, "kv_heads": 2, "hidden": 1024, "max_positions": 512, **_LLAMA},
    "gpt2-tiny": {"dim": 128, "depth": 4, "heads": 4, "hidden": 512, "max_positions": 64, **_GPT2},
    "gpt2": {"dim": 768, "depth": 12, "heads": 12, "hidden": 3072, "max_positions": 1024, **_GPT2},
    "gpt2-medium": {"dim": 1024, "depth": 24, "heads": 16, "hidden": 4096, "max_positions": 1024, **_GPT2},
    "gpt2-large": {"dim": 1280, "depth": 36, "heads": 20, "hidden": 5120, "max_positions": 1024, **_GPT2},
    "gpt2-xl": {"dim": 1600, "depth": 48, "heads": 25, "hidden": 6400, "max_positions": 1024, **_GPT2},
}

_BERT: dict[str, Any] = {
    "activation": "gelu",
    "norm": "layer",
    "norm_first": False,
    "epsilon": 1e-12,
    "position": "learned",
    "score": "scaled_dot",
    "bias": True,
    "tie_embeddings": True,
    "pooler": True,
    "init": "normal",
}

BERT: dict[str, dict[str, Any]] = {  # https://arxiv.org/abs/1810.04805 and https://arxiv.org/abs/1908.08962
    "bert-tiny": {"dim": 128, "depth": 2, "heads": 2, "hidden": 512, "max_positions": 512, **_BERT},
    "bert-mini": {"dim": 256, "depth": 4, "heads": 4, "hidden": 1024, "max_positions": 512, **_BERT},
    "bert-base": {"dim": 768, "depth": 12, "heads": 12, "hidden": 3072, "max_positions": 512, **_BERT},
    "bert-large": {"dim": 1024, "depth": 24, "heads": 16, "hidden": 4096, "max_positions": 512, **_BERT},
}

_PUBLISHED: dict[str, Any] = {
    "activation": "relu",
    "norm": "layer",
    "norm_first": False,
    "position": "sinusoidal",
    "score": "scaled_dot",
    "bias": True,
    "tie_embeddings": True,
    "embedding_norm": False,
    "init": "xavier",
}


def _published(dim: int, depth: int, heads: int, hidden: int, dropout: float) -> dict[str, Any]:
    """Return the settings of an encoder and decoder of equal depth, as in Attention Is All You Need."""
    shape = {"dim": dim, "depth": depth, "decoder_depth": depth, "heads": heads, "hidden": hidden}
    return {"model": {"transformer": {**shape, "dropout": dropout, "embedding_dropout": dropout, **_PUBLISHED}}}


TRANSLATION: dict[str, dict[str, Any]] = {
    "dates": {
        "model": {
            "transformer": {
                "dim": 64,
                "depth": 2,
                "decoder_depth": 1,
                "heads": 4,
                "hidden": 256,
                "dropout": 0.0,
                "embedding_dropout": 0.0,
            }
        },
        "data": {"tokenizer": "characters"},
        "batch_tokens": 2000,
        "label_smoothing": 0.0,
    },
    "long": {  # for at least an hour on tens of thousands of pairs
        "model": {"transformer": {"depth": 4, "decoder_depth": 3, "hidden": 512, "dropout": 0.2}},
        "consistency": 3.0,
        "batch_tokens": 2500,
    },
    "tiny": _published(128, 4, 4, 256, 0.3),  # https://arxiv.org/abs/2105.14462, for Multi30k
    "small": _published(512, 6, 4, 1024, 0.3),  # fairseq's for IWSLT
    "base": _published(512, 6, 8, 2048, 0.1),
    "large": _published(1024, 6, 16, 4096, 0.3),
}
