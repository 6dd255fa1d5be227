"""Checks of tokenizer files: downloaded files are validated before the library parses them."""

import base64
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from saccade.errors import ModelFileError

MAX_BYTES = 64 << 20  # bytes
MAX_VOCABULARY = 2_000_000
MAX_DEPTH = 24
MAX_LITERAL = 256
MAX_GROWTH = 64

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
CHARACTER = r"[\s\S]"
# How GPT-4 and Llama 3 split words, and Qwen 2, which splits numbers into digits.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
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
        r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
        LLAMA3,
        QWEN2,
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
        line = str(error).partition("\n")[0][:200]
        reason = "".join(character if character.isprintable() else "?" for character in line)
        message = f"{path}: the tokenizer file cannot be used ({type(error).__name__}: {reason})"
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
    content = parse_json(path, text)
    model = content.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if kind not in MODELS:
        raise refusal(path, f"the model must be one of {', '.join(MODELS)}, but is {kind!r:.80}")
    check_vocabulary(path, cast(dict[str, object], model).get("vocab"))
    _check_added(path, content.get("added_tokens") or [])
    for name, allowed in COMPONENTS.items():
        _check_component(path, name, content.get(name), allowed.split(), 0)
        if (growth := _growth(content.get(name))) > MAX_GROWTH:
            raise refusal(path, f"a {name} must lengthen a text at most {MAX_GROWTH} times, not {growth:,} times")


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


def _is_id(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MAX_VOCABULARY


def _check_added(path: Path, added: object) -> None:
    if not isinstance(added, list) or len(added) > 20_000:
        raise refusal(path, "added_tokens must be a list of at most 20,000 tokens, but is not")
    for token in added:
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str) or not 0 < len(content) <= MAX_LITERAL or not _is_id(token.get("id")):
            raise refusal(path, f"an added token must have a short content and an id, but is {str(token)[:80]}")


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
    if kind == "Precompiled":
        _check_charsmap(path, part.get("precompiled_charsmap"))
    inner = [step for key in ("normalizers", "pretokenizers", "processors", "decoders") for step in part.get(key) or []]
    for step in inner:
        _check_component(path, name, step, allowed, depth + 1)


def _check_charsmap(path: Path, coded: object) -> None:
    """Check that a table of characters is complete: the library panics on one that is not."""
    try:
        table = base64.b64decode(coded if isinstance(coded, str) else "", validate=True)
        size = int.from_bytes(table[:4], "little")
        table[4 + size :].decode()
        complete = len(table) > 4 and size % 4 == 0 and 0 < size <= len(table) - 4
    except ValueError:
        complete = False
    if not complete:
        raise refusal(path, "a precompiled_charsmap must be a complete table of characters, but is not")


def _growth(part: Any) -> int:
    """Return how many times longer a component and those inside it can make a text: replacements multiply."""
    if part is None:
        return 1
    content = part.get("content")
    own = max(1, len(content)) if isinstance(content, str) else 1
    inner = [step for key in ("normalizers", "pretokenizers", "processors", "decoders") for step in part.get(key) or []]
    return own * math.prod(map(_growth, inner))


def _check_pattern(path: Path, pattern: object) -> None:
    if pattern is None:
        return
    syntax, value = next(iter(pattern.items())) if isinstance(pattern, dict) and len(pattern) == 1 else (None, None)
    if syntax == "String" and isinstance(value, str) and len(value) <= MAX_LITERAL:
        return
    if syntax == "Regex" and isinstance(value, str) and (value in PATTERNS or LITERAL.fullmatch(value)):
        return
    raise refusal(path, f"a pattern must be that of a known tokenizer or a short literal, but is {str(value)[:60]!r}")
