"""Checks of tokenizer files: downloaded files are validated before the library parses them."""

import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from saccade.data.text.charsmap import charsmap_fault
from saccade.errors import ModelFileError, printable

MAX_BYTES = 64 << 20  # bytes
MAX_VOCABULARY = 2_000_000
MAX_OBJECTS = 100_000  # JSON objects of a file: a tokenizer has one for each added token
MAX_TOKEN = 1024  # characters of a token
MAX_UNIGRAM = 6 << 20  # characters of all pieces, of which the library keeps a tree
MAX_ADDED, MAX_ADDED_CHARACTERS = 20_000, 1 << 19  # of which the library builds an automaton
MAX_DEPTH = 24
MAX_STEPS = 64  # of a normalizer and the like, steps inside it included
MAX_VALUES = 4096  # numbers and texts of a normalizer and the like
MAX_LITERAL = 256
MAX_GROWTH = 64
COMPATIBILITY = 16  # times that a table of characters lengthens a text: U+FDFA becomes a sentence
SPACE = "\u2581"  # how SentencePiece writes a space
END_OF_WORD = "</w>"  # how CLIP marks the last token of a word

MODELS = ("BPE", "WordPiece", "WordLevel", "Unigram")
COMPONENTS = {
    "normalizer": (
        "Sequence BertNormalizer NFC NFD NFKC NFKD Lowercase Strip StripAccents Nmt Prepend Replace Precompiled"
    ),
    "pre_tokenizer": (
        "Sequence BertPreTokenizer ByteLevel Whitespace WhitespaceSplit Metaspace Digits Punctuation Split"
    ),
    "post_processor": "Sequence BertProcessing RobertaProcessing ByteLevel TemplateProcessing",
    "decoder": "Sequence ByteLevel WordPiece Metaspace BPEDecoder ByteFallback Fuse Strip Replace CTC",
}
STEPS = ("normalizers", "pretokenizers", "processors", "decoders")  # keys of a Sequence
CHARACTER = r"[\s\S]"
# How GPT-4 and Llama 3 split words, and Qwen 2, which splits numbers into digits.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
# GPT-4 and nanochat, with possessive quantifiers; Mistral NeMo; GPT-4o, which keeps endings such as 's with the word.
GPT4 = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
NANOCHAT = GPT4.replace("{1,3}", "{1,2}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDING, _OTHER = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
NEMO, GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{ending}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{ending}"
    rf"|{number}|{_OTHER}"
    for ending, number in (("", r"\p{N}"), (_ENDING, r"\p{N}{1,3}"))
)
CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
PUNCTUATION = r"[!-/:-@\[-`{-~]"  # of ASCII, which SigLIP removes
# A regular expression can take forever; only those of well-known tokenizers are allowed.
PATTERNS = frozenset(
    (
        CHARACTER,
        " {2,}",
        r"\s+",
        r"\d{1,3}",
        r"\p{N}{1,3}",
        r"\p{N}",
        # GPT-2
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        # CLIP
        r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
        CLIP_WORDS,
        *(LLAMA3, QWEN2, GPT4, NANOCHAT, NEMO, GPT4O, PUNCTUATION),
    )
)
LITERAL = re.compile(r"[^\\^$.|?*+()\[\]{}]{1,32}")

Result = TypeVar("Result")


def call_library(path: Path | str, action: Callable[[], Result]) -> Result:
    """Call the tokenizer library; whatever it raises, panics included, becomes a ModelFileError."""
    try:
        return action()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    # A panic in the library is not an Exception, only a BaseException.
    except BaseException as error:
        reason = printable(str(error).partition("\n")[0][:200]) or "for no reason that the library names"
        name = "" if isinstance(error, Exception) else f"{type(error).__name__}: "
        message = f"{path}: the tokenizer file cannot be used ({name}{reason})"
        raise ModelFileError(f"{message}; download it again, or train a new one") from error


def read_tokenizer_file(path: Path) -> str:
    """Return the text of a tokenizer file that passes all checks."""
    text = read_text(path)
    check_tokenizer(path, text)
    return text


def read_text(path: Path) -> str:
    """Return the text of a file of a tokenizer, which must be of limited size and utf-8."""
    try:
        size = path.stat().st_size
        if not path.is_file() and not path.is_dir():  # reading a pipe would never end
            raise refusal(path, "must be a regular file, but is not")
        if size > MAX_BYTES:
            raise refusal(path, f"the file must be at most {MAX_BYTES:,} bytes, but has {size:,}")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror}; name a tokenizer.json") from error
    except UnicodeDecodeError as error:
        raise refusal(path, f"must be utf-8, but byte {error.start:,} is 0x{error.object[error.start]:02X}") from error


def parse_json(path: Path, text: str) -> dict[str, Any]:
    """Parse a JSON object; duplicate keys are refused, since readers differ in which one they use."""
    if (count := text.count("{")) > MAX_OBJECTS:
        raise refusal(path, f"must have at most {MAX_OBJECTS:,} JSON objects, but has {count:,}")
    try:
        content = json.loads(text, object_pairs_hook=lambda pairs: _unique(path, pairs))
    except RecursionError as error:
        raise refusal(path, f"must be at most {MAX_DEPTH} levels deep, but is deeper") from error
    except ValueError as error:
        raise refusal(path, f"must be JSON, but is not ({error})") from error
    if not isinstance(content, dict):
        raise refusal(path, "must be a JSON object, but is not")
    return content


def check_tokenizer(path: Path, text: str) -> None:
    """Raise ModelFileError for anything in a tokenizer file that is not explicitly allowed."""
    parse_tokenizer(path, text)


def parse_tokenizer(path: Path, text: str) -> dict[str, Any]:
    """Return the content of a tokenizer file that passes all checks."""
    content = parse_json(path, text)
    model = content.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if kind not in MODELS:
        raise refusal(path, f"the model must be one of {', '.join(MODELS)}, but is {kind!r:.80}")
    _check_model(path, cast(dict[str, Any], model))
    _check_added(path, content.get("added_tokens") or [])
    _check_templates(path, content.get("post_processor"))
    for name, allowed in COMPONENTS.items():
        part = content.get(name)
        _check_size(path, name, part)
        _check_component(path, name, part, allowed.split(), 0)
        if (growth := _growth(part)) > MAX_GROWTH:
            raise refusal(path, f"a {name} must lengthen a text at most {MAX_GROWTH} times, not {growth:,} times")
    return content


def _check_templates(path: Path, part: object) -> None:
    """Check that templates use the special tokens they define: the library would end the process for others."""
    if not isinstance(part, dict):
        return
    for step in part.get("processors") or [part]:
        if not isinstance(step, dict) or step.get("type") != "TemplateProcessing":
            continue
        defined = step.get("special_tokens")
        templates = [part for part in (step.get("single"), step.get("pair")) if isinstance(part, list)]
        for piece in itertools.chain(*templates):
            token = piece.get("SpecialToken") if isinstance(piece, dict) else None
            name = token.get("id") if isinstance(token, dict) else None
            if isinstance(name, str) and not (isinstance(defined, dict) and name in defined):
                raise refusal(path, f"a template must use the special tokens it defines, but uses {name!r:.80}")


def refusal(path: Path, rule: str) -> ModelFileError:
    """Return the error for a tokenizer file that breaks a rule."""
    return ModelFileError(
        f"{path}: not a valid tokenizer file: {rule}; use one saved by Saccade or of a supported model"
    )


def _unique(path: Path, pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise refusal(path, f"keys must be unique, but one of {len(pairs):,} occurs twice")
    return row


def check_vocabulary(path: Path, vocabulary: object) -> None:
    """Check that token ids, which become rows of an embedding, are small, unique and not negative."""
    if not isinstance(vocabulary, (dict, list)) or not vocabulary:
        raise refusal(path, "the vocabulary must map tokens to ids, but is missing or empty")
    if len(vocabulary) > MAX_VOCABULARY:
        raise refusal(path, f"the vocabulary must have at most {MAX_VOCABULARY:,} tokens, but has {len(vocabulary):,}")
    if isinstance(vocabulary, list):
        return
    bad = next(((token, number) for token, number in vocabulary.items() if not _is_id(number)), None)
    if bad is not None:
        rule = f"token ids must be integers from 0 to {MAX_VOCABULARY:,}"
        raise refusal(path, f"{rule}, but {bad[0]!r:.80} has {bad[1]!r:.80}")
    if len(set(vocabulary.values())) < len(vocabulary):
        raise refusal(path, "token ids must be unique, but one occurs twice")


def check_fits(folder: Path, size: int, config: Mapping[str, Any]) -> None:
    """Refuse a tokenizer with more tokens than the network of a config.json has rows."""
    rows = config.get("vocab_size")
    if isinstance(rows, int) and size > rows:
        raise ModelFileError(
            f"{folder}: the tokenizer must have at most {rows:,} tokens (vocab_size in config.json), "
            f"but has {size:,}; download both from the same model"
        )


def _is_id(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MAX_VOCABULARY


def _check_model(path: Path, model: dict[str, Any]) -> None:
    """Check the vocabulary and the merges of a model."""
    vocabulary, merges = model.get("vocab"), model.get("merges") or []
    check_vocabulary(path, vocabulary)
    unigram = model["type"] == "Unigram"
    if not isinstance(vocabulary, list if unigram else dict):
        raise refusal(
            path, f"the vocabulary of a {model['type']} model must be a {'list' if unigram else 'JSON object'}"
        )
    if unigram:
        wrong = next((piece for piece in vocabulary if not _is_piece(piece)), None)
        if wrong is not None:
            raise refusal(path, f"a piece must be a text and its score, but is {str(wrong)[:80]!r}")
        if (total := sum(len(piece) for piece, _ in vocabulary)) > MAX_UNIGRAM:
            raise refusal(path, f"all pieces must have at most {MAX_UNIGRAM:,} characters, but have {total:,}")
    longest = max(map(len, (piece for piece, _ in vocabulary) if unigram else vocabulary))
    if longest > MAX_TOKEN:
        raise refusal(path, f"a token must have at most {MAX_TOKEN:,} characters, but one has {longest:,}")
    if not isinstance(merges, list) or len(merges) > MAX_VOCABULARY:
        raise refusal(path, f"merges must be a list of at most {MAX_VOCABULARY:,}, but are not")
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name) is not None:
            check_short(path, name, model[name], empty=True)
    prefix = model.get("continuing_subword_prefix")
    if model["type"] == "BPE" and prefix:
        wrong = next((merge for merge in merges if not _continues(merge, prefix)), None)
        if wrong is not None:
            raise refusal(path, f"the second part of a merge must start with {prefix!r:.40}, but is {wrong!r:.40}")


def _continues(merge: object, prefix: str) -> bool:
    """Whether the second part of a merge has the prefix of tokens inside a word; the library cuts it off."""
    parts = merge.split(" ") if isinstance(merge, str) else merge
    return isinstance(parts, list) and len(parts) == 2 and isinstance(parts[1], str) and parts[1].startswith(prefix)


def _is_piece(piece: object) -> bool:
    """Whether an entry of a Unigram model is a text with a finite score."""
    if not isinstance(piece, list) or len(piece) != 2 or not isinstance(piece[0], str):
        return False
    return isinstance(piece[1], int | float) and math.isfinite(piece[1])


def check_short(path: Path, name: str, value: object, *, empty: bool = False) -> None:
    """Refuse a value that is not a short text."""
    if not isinstance(value, str) or len(value) > MAX_LITERAL or not (value or empty):
        raise refusal(path, f"{name} must be a short text, but is {str(value)[:80]!r}")


def check_added_token(path: Path, token: object) -> None:
    """Refuse an added token without a content, or with other fields than the library knows."""
    if not isinstance(token, dict) or "content" not in token:
        raise refusal(path, f"an added token must have a content, but is {str(token)[:80]}")
    check_short(path, "the content of an added token", token["content"])
    flags = {"single_word", "lstrip", "rstrip", "normalized", "special"}
    for name, value in token.items():
        if name not in ("content", "id") and (name not in flags or not isinstance(value, bool)):
            raise refusal(path, f"{name[:80]!r} of an added token must be a flag, but is {str(value)[:80]!r}")


def _check_added(path: Path, added: object) -> None:
    if not isinstance(added, list) or len(added) > MAX_ADDED:
        raise refusal(path, f"added_tokens must be a list of at most {MAX_ADDED:,} tokens, but is not")
    for token in added:
        check_added_token(path, token)
        if not _is_id(token.get("id")):
            raise refusal(path, f"an added token must have an id, but is {str(token)[:80]}")
    if (total := sum(len(token["content"]) for token in added)) > MAX_ADDED_CHARACTERS:
        raise refusal(path, f"added tokens must have at most {MAX_ADDED_CHARACTERS:,} characters, but have {total:,}")


def _check_size(path: Path, name: str, part: object) -> None:
    """Refuse a component with so many steps, entries or characters that it would slow down every text."""
    pending, values = [part], 0
    while pending:
        item = pending.pop()
        inner = list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
        values += 1 + len(inner)
        if values > MAX_VALUES:
            raise refusal(path, f"a {name} must have at most {MAX_VALUES:,} values, but has more")
        pending += inner


def _check_component(path: Path, name: str, part: object, allowed: list[str], depth: int) -> None:
    """Check a component of the tokenizer and those inside it: only allowed types and patterns."""
    if part is None:
        return
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind not in allowed:
        raise refusal(path, f"a {name} must be one of {', '.join(allowed)}, but is {kind!r:.80}")
    if depth > MAX_DEPTH:
        raise refusal(path, f"must be at most {MAX_DEPTH} levels deep, but is deeper")
    _check_pattern(path, part.get("pattern"))
    _check_texts(path, name, part)
    if kind == "Precompiled" and (fault := charsmap_fault(part.get("precompiled_charsmap"))):
        raise refusal(path, f"a precompiled_charsmap must be a complete table of characters, but {fault}")
    if name == "decoder" and kind == "Strip" and part.get("stop"):
        raise refusal(path, f"the stop of a Strip decoder must be 0, but is {part['stop']!r:.80}")
    steps = _steps(part)
    if len(steps) > MAX_STEPS:
        raise refusal(path, f"a {name} must have at most {MAX_STEPS} steps, but has {len(steps):,}")
    for step in steps:
        _check_component(path, name, step, allowed, depth + 1)


def _steps(part: dict[str, Any]) -> list[Any]:
    """Return the components inside a Sequence."""
    lists = (part.get(key) for key in STEPS)
    return [step for steps in lists if isinstance(steps, list) for step in steps]


def _check_texts(path: Path, name: str, part: dict[str, Any]) -> None:
    """Refuse long texts in a component; the steps of a Sequence and a table of characters are checked on their own."""
    pending: list[Any] = [value for key, value in part.items() if key not in (*STEPS, "precompiled_charsmap")]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += [*item, *item.values()]
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, str) and len(item) > MAX_LITERAL and item not in PATTERNS:
            raise refusal(path, f"a text of a {name} must have at most {MAX_LITERAL} characters, but has {len(item):,}")


def _growth(part: Any) -> int:
    """Return how many times longer a component and those inside it can make a text: replacements multiply."""
    if part is None:
        return 1
    content, prefix = part.get("content"), part.get("prepend")
    own = max(1, len(content)) if isinstance(content, str) else 1
    own += len(prefix) if isinstance(prefix, str) else 0
    own *= COMPATIBILITY if part.get("type") == "Precompiled" else 1
    return own * math.prod(map(_growth, _steps(part)))


def _check_pattern(path: Path, pattern: object) -> None:
    if pattern is None:
        return
    syntax, value = next(iter(pattern.items())) if isinstance(pattern, dict) and len(pattern) == 1 else (None, None)
    if syntax == "String" and isinstance(value, str) and 0 < len(value) <= MAX_LITERAL:
        return
    if syntax == "Regex" and isinstance(value, str) and (value in PATTERNS or LITERAL.fullmatch(value)):
        return
    raise refusal(path, f"a pattern must be that of a known tokenizer or a short literal, but is {str(value)[:60]!r}")
