"""The supported model families by model_type, in the order in which export tries them."""

from saccade.pretrained.families import (
    bert,
    clip,
    deit,
    distilbert,
    efficientnet,
    gemma3,
    gpt2,
    llama,
    marian,
    nanochat,
    pix2tex,
    roberta,
    siglip,
    vit,
    whisper,
)
from saccade.pretrained.families.family import Family, Names

ENCODERS = (bert.FAMILY, roberta.FAMILY, distilbert.FAMILY)
DECODERS = (
    *(gpt2.FAMILY, llama.LLAMA, llama.MISTRAL, llama.QWEN2, llama.QWEN3, llama.SMOLLM3),
    *(gemma3.FAMILY, nanochat.FAMILY),
)
IMAGES = (vit.FAMILY, deit.FAMILY, clip.FAMILY, siglip.FAMILY, efficientnet.FAMILY, pix2tex.FAMILY)
SEQ2SEQ = (marian.FAMILY, whisper.FAMILY)
FAMILIES: dict[str, Family] = {family.name: family for family in (*ENCODERS, *DECODERS, *SEQ2SEQ, *IMAGES)}

__all__ = ["FAMILIES", "Family", "Names"]
