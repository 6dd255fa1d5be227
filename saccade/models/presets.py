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

_VIT: dict[str, Any] = {
    "activation": "gelu",
    "norm": "layer",
    "epsilon": 1e-6,
    "score": "scaled_dot",
    "bias": True,
    "image_size": 224,
    "position": "learned",
    "class_token": True,
    "pooling": "class",
    "embedding_norm": False,
    "init": "normal",
}
_DEIT: dict[str, Any] = {**_VIT, "patch": 16, "distillation_token": True, "pooling": "distilled"}

VIT: dict[str, dict[str, Any]] = {  # https://arxiv.org/abs/2010.11929 and, for tiny and small, 2012.12877
    "vit-tiny-16": {"dim": 192, "depth": 12, "heads": 3, "hidden": 768, "patch": 16, **_VIT},
    "vit-small-16": {"dim": 384, "depth": 12, "heads": 6, "hidden": 1536, "patch": 16, **_VIT},
    "vit-base-16": {"dim": 768, "depth": 12, "heads": 12, "hidden": 3072, "patch": 16, **_VIT},
    "vit-base-32": {"dim": 768, "depth": 12, "heads": 12, "hidden": 3072, "patch": 32, **_VIT},
    "vit-large-16": {"dim": 1024, "depth": 24, "heads": 16, "hidden": 4096, "patch": 16, **_VIT},
    "deit-tiny-16": {"dim": 192, "depth": 12, "heads": 3, "hidden": 768, **_DEIT},
    "deit-small-16": {"dim": 384, "depth": 12, "heads": 6, "hidden": 1536, **_DEIT},
    "deit-base-16": {"dim": 768, "depth": 12, "heads": 12, "hidden": 3072, **_DEIT},
}


def _clip(vision: dict[str, Any], text_dim: int, projection: int) -> dict[str, Any]:
    """Return the settings of a CLIP whose text encoder has 12 layers and heads of width 64."""
    heads = {"activation": "quick_gelu", "epsilon": 1e-5, "embedding_norm": True, "patch_bias": False}
    text: dict[str, Any] = {"dim": text_dim, "depth": 12, "heads": text_dim // 64, "hidden": 4 * text_dim}
    text |= {"activation": "quick_gelu", "norm": "layer", "position": "learned", "score": "scaled_dot", "bias": True}
    text |= {"max_positions": 77, "causal": True, "pooling": "eos", "embedding_norm": False, "init": "normal"}
    return {"vision": {**vision, **heads}, "text": text, "projection": projection}


def _siglip(vision: str) -> dict[str, Any]:
    """Return the settings of a SigLIP whose text encoder has the shape of its image encoder."""
    shape = {key: VIT[vision][key] for key in ("dim", "depth", "heads", "hidden")}
    published: dict[str, Any] = {"activation": "gelu_tanh", "norm": "layer", "epsilon": 1e-6, "position": "learned"}
    published |= {"score": "scaled_dot", "bias": True, "embedding_norm": False, "init": "normal"}
    image: dict[str, Any] = {
        "class_token": False,
        "pooling": "attention",
        "image_size": 224,
        "patch": VIT[vision]["patch"],
    }
    text = {"max_positions": 64, "pooling": "last", "causal": False}
    sides = {"vision": {**shape, **published, **image}, "text": {**shape, **published, **text}}
    return {**sides, "projection": shape["dim"], "project_image": False, "text_bias": True, "loss": "sigmoid"}


_CLIP_L14 = {**VIT["vit-large-16"], "patch": 14}

CLIP: dict[str, dict[str, Any]] = {  # https://arxiv.org/abs/2103.00020; SigLIP: https://arxiv.org/abs/2303.15343
    "clip-vit-base-32": _clip(VIT["vit-base-32"], 512, 512),
    "clip-vit-base-16": _clip(VIT["vit-base-16"], 512, 512),
    "clip-vit-large-14": _clip(_CLIP_L14, 768, 768),
    "siglip-base-16": _siglip("vit-base-16"),
}
