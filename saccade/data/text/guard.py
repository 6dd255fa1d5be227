"""The guard before tokenizer files: looks at a file from elsewhere before the library may run any of it."""

import base64
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from saccade.errors import ModelFileError

LARGEST_FILE = 64 << 20  # bytes
LARGEST_VOCABULARY = 2_000_000
DEEPEST = 24
LONGEST_LITERAL = 256
MOST_GROWTH = 64

MODELS = ("BPE", "WordPiece", "WordLevel", "Unigram")
PARTS = {
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
# The words of GPT-4 and Llama 3, and of Qwen 2, which takes each digit alone.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
# Patterns are programs: one can be written that never ends. These are the ones of well-known tokenizers.
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


def guarded(path: Path | str, action: Callable[[], Result]) -> Result:
    """Run a call into the tokenizer library; any way it can fail, panics included, becomes an error of ours."""
    try:
        return action()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    # A panic in the library is not an Exception, only a BaseException.
    except BaseException as error:
        first = "".join(sign if sign.isprintable() else "?" for sign in str(error).partition("\n")[0][:200])
        message = f"{path}: the tokenizer file cannot be used ({type(error).__name__}: {first})"
        raise ModelFileError(f"{message}; get it again from where it came from, or train a new one") from error


def read_tokenizer_file(path: Path) -> str:
    """The text of a tokenizer file that keeps all the rules."""
    text = read_text(path)
    check_tokenizer_text(path, text)
    return text


def read_text(path: Path) -> str:
    """The text of a file of a tokenizer, which must be of a sensible size and utf-8."""
    try:
        size = path.stat().st_size
        if not path.is_file() and not path.is_dir():  # a pipe would be waited for without end
            raise refusal(path, "must be an ordinary file, but is not")
        if size > LARGEST_FILE:
            raise refusal(path, f"the file must be at most {LARGEST_FILE:,} bytes, but has {size:,}")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror}; name a tokenizer.json") from error
    except UnicodeDecodeError as error:
        raise refusal(path, f"must be utf-8, but byte {error.start:,} is 0x{error.object[error.start]:02X}") from error


def parse(path: Path, text: str) -> dict[str, Any]:
    """The JSON object that a text is; a key that stands twice is refused, since readers differ in which they take."""
    try:
        content = json.loads(text, object_pairs_hook=lambda pairs: _unique(path, pairs))
    except RecursionError as error:
        raise refusal(path, f"must be at most {DEEPEST} levels deep, but is deeper") from error
    except ValueError as error:
        raise refusal(path, f"must be JSON, but is not ({error})") from error
    if not isinstance(content, dict):
        raise refusal(path, "must be a JSON object, but is not")
    return content


def check_tokenizer_text(path: Path, text: str) -> None:
    """Raise ModelFileError for anything in a tokenizer file that is not known to be harmless."""
    content = parse(path, text)
    model = content.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if kind not in MODELS:
        raise refusal(path, f"the model must be one of {', '.join(MODELS)}, but is {kind!r:.80}")
    check_vocabulary(path, cast(dict[str, object], model).get("vocab"))
    _check_added(path, content.get("added_tokens") or [])
    for name, known in PARTS.items():
        _check_part(path, name, content.get(name), known.split(), 0)
        if (growth := _growth(content.get(name))) > MOST_GROWTH:
            raise refusal(path, f"a {name} must lengthen a text at most {MOST_GROWTH} times, not {growth:,} times")


def refusal(path: Path, rule: str) -> ModelFileError:
    """The error for a tokenizer file that breaks a rule."""
    return ModelFileError(
        f"{path}: not a tokenizer file to be trusted: {rule}; use one saved by Saccade or a known model"
    )


def _unique(path: Path, pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise refusal(path, f"keys must be different, but one of {len(pairs):,} stands twice")
    return row


def check_vocabulary(path: Path, vocabulary: object) -> None:
    """Token numbers become rows of a table: they must be small, different and not negative."""
    if not isinstance(vocabulary, (dict, list)) or not vocabulary:
        raise refusal(path, "the vocabulary must be a table of tokens, but is missing or empty")
    if len(vocabulary) > LARGEST_VOCABULARY:
        raise refusal(
            path, f"the vocabulary must have at most {LARGEST_VOCABULARY:,} tokens, but has {len(vocabulary):,}"
        )
    if isinstance(vocabulary, list):
        return
    bad = next(((token, number) for token, number in vocabulary.items() if not _is_id(number)), None)
    if bad is not None:
        rule = f"token numbers must be whole, from 0 to {LARGEST_VOCABULARY:,}"
        raise refusal(path, f"{rule}, but {bad[0]!r:.80} has {bad[1]!r:.80}")
    if len(set(vocabulary.values())) < len(vocabulary):
        raise refusal(path, "token numbers must be different, but one stands twice")


def _is_id(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= LARGEST_VOCABULARY


def _check_added(path: Path, added: object) -> None:
    if not isinstance(added, list) or len(added) > 20_000:
        raise refusal(path, "added_tokens must be a list of at most 20,000 tokens, but is not")
    for token in added:
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str) or not 0 < len(content) <= LONGEST_LITERAL or not _is_id(token.get("id")):
            raise refusal(path, f"an added token must have a short content and a number, but is {str(token)[:80]}")


def _check_part(path: Path, name: str, part: object, known: list[str], depth: int) -> None:
    """One step of the tokenizer, and the steps inside it: only known kinds, only known patterns."""
    if part is None:
        return
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind not in known:
        raise refusal(path, f"a {name} must be one of {', '.join(known)}, but is {kind!r:.80}")
    if depth > DEEPEST:
        raise refusal(path, f"must be at most {DEEPEST} levels deep, but is deeper")
    _check_pattern(path, part.get("pattern"))
    if kind == "Precompiled":
        _check_table(path, part.get("precompiled_charsmap"))
    inner = [step for key in ("normalizers", "pretokenizers", "processors", "decoders") for step in part.get(key) or []]
    for step in inner:
        _check_part(path, name, step, known, depth + 1)


def _check_table(path: Path, coded: object) -> None:
    """A table of characters must be whole: the library panics on one that is not."""
    try:
        table = base64.b64decode(coded if isinstance(coded, str) else "", validate=True)
        size = int.from_bytes(table[:4], "little")
        table[4 + size :].decode()
        whole = len(table) > 4 and size % 4 == 0 and 0 < size <= len(table) - 4
    except ValueError:
        whole = False
    if not whole:
        raise refusal(path, "a precompiled_charsmap must be a whole table of characters, but is not")


def _growth(part: Any) -> int:
    """How many times longer a step and the steps inside it can make a text: replacements multiply."""
    if part is None:
        return 1
    content = part.get("content")
    own = max(1, len(content)) if isinstance(content, str) else 1
    inner = [step for key in ("normalizers", "pretokenizers", "processors", "decoders") for step in part.get(key) or []]
    return own * math.prod(map(_growth, inner))


def _check_pattern(path: Path, pattern: object) -> None:
    if pattern is None:
        return
    way, value = next(iter(pattern.items())) if isinstance(pattern, dict) and len(pattern) == 1 else (None, None)
    if way == "String" and isinstance(value, str) and len(value) <= LONGEST_LITERAL:
        return
    if way == "Regex" and isinstance(value, str) and (value in PATTERNS or LITERAL.fullmatch(value)):
        return
    raise refusal(path, f"a pattern must be a known one or a short literal, but is {str(value)[:60]!r}")
