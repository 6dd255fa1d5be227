"""Tokenizers of pretrained folders: what transformers' AutoTokenizer makes of tokenizer.json and its settings.

Some classes of transformers take the vocabulary of tokenizer.json alone and add the rules of their family.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from saccade.data.text.tokenizer_checks import (
    CLIP_WORDS,
    END_OF_WORD,
    QWEN2,
    SPACE,
    call_library,
    check_fits,
    parse_tokenizer,
    read_text,
    refusal,
)
from saccade.data.text.tokenizer_settings import (
    BACKEND,
    BACKENDS,
    ROLES,
    TokenizerSettings,
    read_settings,
    str_of,
    tokens_to_add,
)
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import ModelFileError

TOKENIZER = "tokenizer.json"

Content = Mapping[str, Any]


@dataclass(frozen=True)
class TokenizerClass:
    """A tokenizer class of transformers that rebuilds its rules."""

    model: str
    """type of the model in tokenizer.json whose vocabulary it takes"""
    build: Callable[[Content, TokenizerSettings], library.Tokenizer]
    defaults: Mapping[str, str]
    """special tokens by role that the settings do not name"""
    finish: Callable[[library.Tokenizer, Mapping[str, str], bool], Any] | None = None
    """(tokenizer, special tokens by role, add_prefix_space) -> the post-processor of the class"""
    plain_specials: bool = False
    """the class adds its special tokens once more, without the flags that a file gives them"""


def read_auto_tokenizer(folder: Path, config: Mapping[str, Any]) -> Tokenizer:
    """Read the tokenizer.json of a folder whose config.json is `config`, as transformers does."""
    path = folder / TOKENIZER
    text = read_text(path)
    content = parse_tokenizer(path, text)
    vocabulary = content["model"]["vocab"]  # before the library reads it, which can take long
    check_fits(folder, max(vocabulary.values()) + 1 if isinstance(vocabulary, dict) else len(vocabulary), config)
    settings = read_settings(folder)
    name = settings.tokenizer_class(config, text)
    if name != BACKEND and name not in CLASSES:
        supported = ", ".join((*BACKENDS[-1:], *CLASSES))
        raise ModelFileError(
            f"{settings.path}: tokenizer_class must be one of {supported}, but is {name!r:.80}; "
            "choose another model, or write PreTrainedTokenizerFast there to use tokenizer.json as it is"
        )
    if name in CLASSES and (kind := content["model"]["type"]) != CLASSES[name].model:
        raise refusal(path, f"the model of a {name} must be {CLASSES[name].model}, but is {kind}")

    def build() -> Tokenizer:
        inner = library.Tokenizer.from_str(text)
        if name in CLASSES:
            return build_tokenizer(path, CLASSES[name], content, settings, inner.post_processor)
        present = {token.content for token in inner.get_added_tokens_decoder().values()}
        inner.add_tokens(list(tokens_to_add(settings, content, {}, present)))
        return Tokenizer(inner, path)

    return call_library(path, build)


def special_tokens(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens of a folder by role, such as bos_token, as transformers gives them to a template."""
    settings, path = read_settings(folder), folder / TOKENIZER
    rules = CLASSES.get(settings.tokenizer_class(config, read_text(path) if path.exists() else ""))
    named = settings.named(rules.defaults if rules is not None else {})
    return {role: str_of(token) for role, token in named.items() if role in ROLES}


def build_tokenizer(
    path: Path, rules: TokenizerClass, content: Content, settings: TokenizerSettings, post_processor: Any
) -> Tokenizer:
    """Return the tokenizer that a class makes of a model and its added tokens."""
    inner, defaults = rules.build(content, settings), rules.defaults
    if post_processor is not None:
        inner.post_processor = post_processor
    inner.add_tokens(list(tokens_to_add(settings, content, defaults, set())))
    if rules.plain_specials:
        names = dict.fromkeys(map(str_of, (*settings.named(defaults).values(), *settings.extra())))
        inner.add_tokens([library.AddedToken(token, special=True) for token in names])
    if rules.finish is not None:
        roles = {role: settings.special(role) or defaults[role] for role in defaults}
        inner.post_processor = rules.finish(inner, roles, settings.flag("add_prefix_space") is True)
    return Tokenizer(inner, path)


def _merges(model: Content) -> list[tuple[str, str]]:
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges") or [])
    return [(left, right) for left, right in pairs]


def _gpt2(content: Content, settings: TokenizerSettings) -> library.Tokenizer:
    inner = library.Tokenizer(models.BPE(content["model"]["vocab"], _merges(content["model"])))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=settings.flag("add_prefix_space") is True)
    inner.decoder = decoders.ByteLevel()
    return inner


def _qwen2(content: Content, settings: TokenizerSettings) -> library.Tokenizer:
    inner = _gpt2(content, settings)
    inner.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(library.Regex(QWEN2), "isolated")
    space = settings.flag("add_prefix_space") is True
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=False)]
    )
    return inner


def _clip(content: Content, settings: TokenizerSettings) -> library.Tokenizer:
    unknown = settings.special("unk_token") or CLIP["unk_token"]
    vocabulary, merges = content["model"]["vocab"], _merges(content["model"])
    model = models.BPE(
        vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix=END_OF_WORD, unk_token=unknown
    )
    inner = library.Tokenizer(model)
    spaces = normalizers.Replace(library.Regex(r"\s+"), " ")
    inner.normalizer = normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()])
    split = pre_tokenizers.Split(library.Regex(CLIP_WORDS), "removed", invert=True)
    inner.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    inner.decoder = decoders.ByteLevel()
    return inner


def _llama(content: Content, settings: TokenizerSettings) -> library.Tokenizer:
    model = models.BPE(content["model"]["vocab"], _merges(content["model"]), fuse_unk=True, byte_fallback=True)
    inner = library.Tokenizer(model)
    spaced = settings.flag("add_prefix_space") is not False
    scheme = ("always" if settings.flag("legacy") else "first") if spaced else "never"
    inner.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=False)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    inner.decoder = decoders.Sequence([*steps, decoders.Strip(" ", left=1)] if spaced else steps)
    return inner


def _gemma(content: Content, settings: TokenizerSettings) -> library.Tokenizer:
    unknown = settings.special("unk_token") or GEMMA["unk_token"]
    vocabulary, merges = content["model"]["vocab"], _merges(content["model"])
    inner = library.Tokenizer(models.BPE(vocabulary, merges, fuse_unk=True, byte_fallback=True, unk_token=unknown))
    inner.normalizer = normalizers.Replace(" ", SPACE)
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    inner.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return inner


def _bert(content: Content, settings: TokenizerSettings) -> library.Tokenizer:
    unknown = settings.special("unk_token") or BERT["unk_token"]
    inner = library.Tokenizer(models.WordPiece(content["model"]["vocab"], unk_token=unknown))
    inner.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=settings.flag("tokenize_chinese_chars") is not False,
        strip_accents=settings.flag("strip_accents"),
        lowercase=settings.flag("do_lower_case") is not False,
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    return inner


def _xlm_roberta(content: Content, settings: TokenizerSettings) -> library.Tokenizer:
    pieces = [(piece, score) for piece, score in content["model"]["vocab"]]
    inner = library.Tokenizer(models.Unigram(pieces, 3, False))
    normalizer = content.get("normalizer") or {}
    for step in normalizer.get("normalizers") or [normalizer]:
        if step.get("type") == "Precompiled":
            inner.normalizer = normalizers.Precompiled(base64.b64decode(step["precompiled_charsmap"]))
            break
    scheme = "never" if settings.flag("add_prefix_space") is False else "always"
    metaspace = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    inner.decoder = decoders.Metaspace(SPACE, prepend_scheme=scheme)
    return inner


def _ends(inner: library.Tokenizer, roles: Mapping[str, str], last: str, first: str) -> tuple[Any, Any]:
    """Return the tokens after and before a text, with their ids."""
    after, before = ((roles[name], inner.token_to_id(roles[name])) for name in (last, first))
    return after, before


def _bert_template(inner: library.Tokenizer, roles: Mapping[str, str], _: bool) -> Any:
    sep, cls = _ends(inner, roles, "sep_token", "cls_token")
    return processors.BertProcessing(sep, cls)


def _roberta_template(inner: library.Tokenizer, roles: Mapping[str, str], add_prefix_space: bool) -> Any:
    sep, cls = _ends(inner, roles, "sep_token", "cls_token")
    return processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=add_prefix_space)


def _text_ends(inner: library.Tokenizer, roles: Mapping[str, str], _: bool) -> Any:
    eos, bos = _ends(inner, roles, "eos_token", "bos_token")
    return processors.RobertaProcessing(eos, bos, trim_offsets=False, add_prefix_space=False)


GPT2 = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
BERT = {
    **{"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"},
    "mask_token": "[MASK]",
}
CLIP = {**dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>"), "bos_token": "<|startoftext|>"}
ROBERTA = {
    **{"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>"},
    **{"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"},
}
GEMMA = {
    **{"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"},
    "mask_token": "<mask>",
}
CLASSES = {
    "BertTokenizer": TokenizerClass("WordPiece", _bert, BERT, _bert_template),
    "CLIPTokenizer": TokenizerClass("BPE", _clip, CLIP, _text_ends),
    "GPT2Tokenizer": TokenizerClass("BPE", _gpt2, GPT2),
    "GemmaTokenizer": TokenizerClass("BPE", _gemma, GEMMA),
    "LlamaTokenizer": TokenizerClass("BPE", _llama, {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}),
    "Qwen2Tokenizer": TokenizerClass(
        "BPE",
        _qwen2,
        dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>"),
        plain_specials=True,
    ),
    "RobertaTokenizer": TokenizerClass("BPE", _gpt2, ROBERTA, _roberta_template),
    "WhisperTokenizer": TokenizerClass("BPE", _gpt2, GPT2),
    "XLMRobertaTokenizer": TokenizerClass("Unigram", _xlm_roberta, ROBERTA, _text_ends),
}
