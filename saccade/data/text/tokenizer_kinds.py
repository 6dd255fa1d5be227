"""Kinds of tokenizers, recognized by their model and rules."""

import tokenizers as library
from tokenizers import decoders, pre_tokenizers

from saccade.data.text.alphabets import UNKNOWN
from saccade.data.text.tokenizer_checks import CHARACTER

MODEL_KINDS = {"BPE": "bpe", "WordPiece": "wordpiece", "Unigram": "unigram", "WordLevel": "words"}


def kind_of(inner: library.Tokenizer) -> str:
    """Return the kind of a tokenizer: characters, words, bpe, wordpiece or unigram."""
    name = type(inner.model).__name__
    return "characters" if name == "WordLevel" and _is_characters(inner) else MODEL_KINDS[name]


def _is_characters(inner: library.Tokenizer) -> bool:
    """Whether a tokenizer maps each character to its id and does nothing else, as `train_tokenizer` makes it."""
    return (
        inner.model.unk_token == UNKNOWN
        and inner.normalizer is None
        and inner.post_processor is None
        and CHARACTER in str(inner.pre_tokenizer)
        and isinstance(inner.pre_tokenizer, pre_tokenizers.Split)
        and isinstance(inner.decoder, decoders.Fuse)
        and all(token.special for token in inner.get_added_tokens_decoder().values())
    )


def is_splittable(inner: library.Tokenizer) -> bool:
    """Whether a newline between two words always ends a token, so that a long text can be split over threads.

    This is not the case if a space is added before each text, or if a text is treated as one word.
    """
    rule = inner.pre_tokenizer
    return (
        inner.normalizer is None
        and isinstance(rule, pre_tokenizers.ByteLevel)
        and bool(rule.use_regex)
        and not rule.add_prefix_space
    )
