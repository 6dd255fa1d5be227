"""The supported model families by model_type, in the order in which export tries them."""

from saccade.pretrained.families import bert, distilbert, gpt2, llama, marian, roberta
from saccade.pretrained.families.family import Family, Names

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (bert.FAMILY, roberta.FAMILY, distilbert.FAMILY, gpt2.FAMILY, llama.LLAMA, llama.QWEN2, marian.FAMILY)
}

__all__ = ["FAMILIES", "Family", "Names"]
