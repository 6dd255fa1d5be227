"""Settings of a tokenizer: the small files beside tokenizer.json that transformers reads too, checked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers as library

from saccade.data.text.tokenizer_checks import (
    MAX_ADDED,
    check_added_token,
    check_short,
    check_vocabulary,
    parse_json,
    read_text,
    refusal,
)
from saccade.errors import ModelFileError

CONFIG, SPECIAL_MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
BACKEND = "TokenizersBackend"
BACKENDS = (BACKEND, "PythonBackend", "PreTrainedTokenizer", "PreTrainedTokenizerFast")
# The tokenizer class that transformers registers for a model_type; for others it takes tokenizer.json as it is.
REGISTERED = {
    "bert": "BertTokenizer",
    "clip": "CLIPTokenizer",
    "distilbert": "BertTokenizer",
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gemma3": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "mistral": BACKEND,
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "siglip": "SiglipTokenizer",
    "whisper": "WhisperTokenizer",
}
ALWAYS_REGISTERED = ("qwen2",)  # model types whose tokenizer_class transformers does not believe
ALIASES = {"DistilBertTokenizer": "BertTokenizer"}

Token = str | library.AddedToken


@dataclass(frozen=True)
class TokenizerSettings:
    """The content of tokenizer_config.json, special_tokens_map.json and added_tokens.json."""

    path: Path
    """of tokenizer_config.json"""
    values: Mapping[str, Any]
    added: Mapping[str, int]
    """tokens of added_tokens.json with their ids"""

    def flag(self, name: str) -> bool | None:
        """Return a setting that is true, false or missing."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise refusal(self.path, f"{name} must be true or false, but is {str(value)[:80]!r}")
        return value

    def special(self, name: str) -> str | None:
        """Return the special token with this role as text."""
        token = self._token(name, self.values.get(name))
        return None if token is None else str_of(token)

    def named(self, defaults: Mapping[str, str]) -> dict[str, Token]:
        """Return the special tokens by role, those that a class of transformers adds by default included."""
        custom = [
            name
            for name, value in self.values.items()
            if name.endswith("_token") and name not in ROLES and isinstance(value, str | dict)
        ]
        extra = self.values.get("extra_special_tokens")
        values = {**defaults, **{name: self.values[name] for name in (*ROLES, *custom) if name in self.values}}
        values |= extra if isinstance(extra, dict) else {}
        tokens = {name: self._token(name, value) for name, value in values.items()}
        order = [name for name in ROLES if name in tokens] + [name for name in tokens if name not in ROLES]
        return {name: token for name in order if (token := tokens[name]) is not None}

    def extra(self) -> list[Token]:
        """Return the special tokens without a role."""
        values = self.values.get("extra_special_tokens") or self.values.get("additional_special_tokens") or []
        if isinstance(values, dict):
            return []
        if not isinstance(values, list) or len(values) > MAX_ADDED:
            raise refusal(self.path, f"additional_special_tokens must be a list of at most {MAX_ADDED:,}, but is not")
        tokens = (self._token("additional_special_tokens", value) for value in values)
        return [token for token in tokens if token is not None]

    def decoder(self) -> dict[int, library.AddedToken] | None:
        """Return the added tokens by id that tokenizer_config.json lists; None: it lists none."""
        listed = self.values.get("added_tokens_decoder")
        if listed is None:
            return None
        if not isinstance(listed, dict) or len(listed) > MAX_ADDED:
            raise refusal(self.path, f"added_tokens_decoder must map at most {MAX_ADDED:,} ids to tokens, but does not")
        tokens: dict[int, library.AddedToken] = {}
        for number, row in listed.items():
            if not number.isdecimal() or len(number) > 9:
                raise refusal(self.path, f"an id of added_tokens_decoder must be a number, but is {number[:80]!r}")
            tokens[int(number)] = added_token(self.path, row)
        return tokens

    def tokenizer_class(self, config: Mapping[str, Any], text: str) -> str:
        """Return the class of transformers that opens the folder; `text` is its tokenizer.json, or empty."""
        if self.values.get("auto_map"):
            raise ModelFileError(
                f"{self.path}: auto_map refers to custom code, which is never run; choose a model without it"
            )
        model_type = str(config.get("model_type"))
        registered = REGISTERED.get(model_type)
        declared = self.values.get("tokenizer_class") or config.get("tokenizer_class")
        if declared is None:
            return registered or BACKEND
        check_short(self.path, "tokenizer_class", declared)
        name = str(declared).removesuffix("Fast")
        if name == "LlamaTokenizer" and '"ByteLevel"' in text and model_type != "mistral":
            return BACKEND
        if registered == BACKEND or (name in BACKENDS and model_type not in ALWAYS_REGISTERED):
            return BACKEND
        return registered if registered and model_type in ALWAYS_REGISTERED else ALIASES.get(name, name)

    def _token(self, role: str, value: object) -> Token | None:
        if value is None:
            return None
        if isinstance(value, dict):
            return added_token(self.path, {name: item for name, item in value.items() if name != "__type"})
        check_short(self.path, role, value)
        return str(value)


def read_settings(folder: Path) -> TokenizerSettings:
    """Read the settings of a folder; special_tokens_map.json comes first, as in transformers."""
    path = folder / CONFIG
    values = _read(path)
    if "added_tokens_decoder" not in values:
        special_map = _read(folder / SPECIAL_MAP)
        values = {**values, **{name: _as_special(value) for name, value in special_map.items()}}
    for name in ("split_special_tokens", "fix_mistral_regex"):
        if values.get(name):
            raise refusal(path, f"{name} must be false, but is {values[name]!r:.80}")
    added = _read(folder / ADDED)
    if added:
        check_vocabulary(folder / ADDED, added)
    return TokenizerSettings(path, values, added)


def added_token(path: Path, row: object) -> library.AddedToken:
    """Return the token of a JSON object: its content, and how it is found in a text."""
    check_added_token(path, row)
    assert isinstance(row, dict)
    return library.AddedToken(**{name: value for name, value in row.items() if name != "id"})


def tokens_to_add(
    settings: TokenizerSettings, content: Mapping[str, Any], defaults: Mapping[str, str], present: set[str]
) -> Iterator[library.AddedToken]:
    """Yield the tokens that transformers adds to a tokenizer when it opens it, in its order.

    `content` is tokenizer.json, `present` are the tokens that were added to the tokenizer already.
    """
    special = {str_of(token) for token in (*settings.named(defaults).values(), *settings.extra())}
    listed = settings.decoder()
    if listed is None:
        listed = {
            number: library.AddedToken(token, normalized=token not in special, special=token in special)
            for token, number in settings.added.items()
        }
        listed |= {row["id"]: added_token(settings.path, row) for row in content.get("added_tokens") or []}
    by_name = {token.content: token for token in listed.values()}
    named = [by_name.get(str_of(token), token) for token in settings.named(defaults).values()]
    names = {str_of(token) for token in named}
    tokens: list[Token] = [token for _, token in sorted(listed.items())]
    for token in (*named, *settings.extra()):
        if str_of(token) not in present | {str_of(other) for other in tokens}:
            tokens.append(token)
    for token in tokens:
        if isinstance(token, str):
            yield library.AddedToken(token, special=True)
            continue
        if token.content in names:
            token.special = True
        yield token


def str_of(token: Token) -> str:
    """Return the text of a token."""
    return token if isinstance(token, str) else str(token.content)


def _read(path: Path) -> dict[str, Any]:
    return parse_json(path, read_text(path)) if path.exists() else {}


def _as_special(value: Any) -> Any:
    """Return a token of special_tokens_map.json, which is special whatever it says."""
    return {**value, "special": True} if isinstance(value, dict) and "content" in value else value
