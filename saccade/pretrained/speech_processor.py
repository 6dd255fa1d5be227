"""Speech processor: the spectrogram of a sound, the tokens of its text and the rules by which they are generated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from saccade.atomic_io import write_json
from saccade.config import from_json
from saccade.data.text.tokenizer_checks import check_fits
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.vocabularies import read_tokenizer
from saccade.errors import ModelFileError, UsageError
from saccade.pretrained.audio_processor import PREPROCESSOR, LogMel, read_log_mel
from saccade.pretrained.strict_json import one_line, read_object

GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG = "generation_config.json", "tokenizer.json", "tokenizer_config.json"
START, NO_TIMESTAMPS = "<|startoftranscript|>", "<|notimestamps|>"
TASKS = ("transcribe", "translate")
LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
MULTILINGUAL = 51_865  # rows of the smallest network of several languages


@dataclass(frozen=True)
class SpeechProcessor:
    """Spectrogram, tokenizer, special tokens and what may not be generated."""

    features: LogMel
    tokenizer: Tokenizer
    start: int
    """token a text starts with"""
    end: int
    """token a text ends with"""
    no_timestamps: int
    """token after which the text has no timestamps; those of the timestamps follow it"""
    languages: Mapping[str, int]
    """tokens of the languages by code; empty: the model knows English alone"""
    tasks: Mapping[str, int]
    """tokens of the tasks; empty: the model can transcribe alone"""
    suppressed: tuple[int, ...] = ()
    """tokens that are never generated"""
    suppressed_first: tuple[int, ...] = ()
    """tokens that a text cannot start with"""
    alignment_heads: tuple[tuple[int, int], ...] = ()
    """(layer, head) of the cross-attention that follows the sound; empty: all of the upper half of the decoder"""
    max_initial_timestamp: int | None = None
    """latest timestamp that a text can start with"""
    max_length: int | None = None
    """tokens of a text; None: as many as the decoder has positions"""
    median_filter: int = 7
    """positions over which attention is smoothed before words are aligned"""

    @property
    def first_timestamp(self) -> int:
        """Token of the timestamp 0."""
        return self.no_timestamps + 1

    @property
    def seconds_per_position(self) -> float:
        """Seconds of a position of the encoder, and from one timestamp to the next."""
        return 2 * self.features.seconds_per_frame

    def prompt(self, language: int | None, task: str, *, timestamps: bool) -> tuple[int, ...]:
        """Return the tokens before a text; `language` is the token of one."""
        spoken = () if language is None else (language,)
        goal = (self.tasks[task],) if task in self.tasks else ()
        return (self.start, *spoken, *goal, *(() if timestamps else (self.no_timestamps,)))

    def describe(self) -> dict[str, Any]:
        """Return a summary as JSON."""
        text = {"tokenizer": self.tokenizer.kind, "vocabulary_size": self.tokenizer.size}
        sound = {"sampling_rate": self.features.sampling_rate, "mel_bins": self.features.feature_size}
        return {"audio_processor": "log-mel", **sound, **text, "languages": len(self.languages) or 1}


@dataclass(frozen=True)
class GenerationFields:
    """Fields of generation_config.json, or of config.json where there is none."""

    decoder_start_token_id: int | None = None
    eos_token_id: int | None = None
    no_timestamps_token_id: int | None = None
    is_multilingual: bool | None = None
    lang_to_id: dict[str, int] | None = None
    task_to_id: dict[str, int] | None = None
    suppress_tokens: list[int] | None = None
    begin_suppress_tokens: list[int] | None = None
    alignment_heads: list[tuple[int, int]] | None = None
    max_initial_timestamp_index: int | None = None
    max_length: int | None = None
    median_filter_width: int = 7

    def __post_init__(self) -> None:
        if self.median_filter_width < 1 or self.median_filter_width % 2 == 0:
            raise ValueError(f"median_filter_width must be odd, but is {self.median_filter_width}")
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, but is {self.max_length}")


def read_speech_processor(folder: Path, config: Mapping[str, Any]) -> SpeechProcessor:
    """Read the processor of a folder whose config.json, already checked, is `config`."""
    features, tokenizer = read_log_mel(folder, config), read_tokenizer(folder, config)
    check_fits(folder, tokenizer.size, config)
    path = folder / GENERATION_CONFIG
    values = read_object(path) if path.is_file() else dict(config)
    values.setdefault("median_filter_width", config.get("median_filter_width", 7))
    path = path if path.is_file() else folder / "config.json"
    names = {entry.name for entry in fields(GenerationFields)}
    try:
        read = from_json(GenerationFields, {name: value for name, value in values.items() if name in names})
    except (UsageError, TypeError) as error:
        raise ModelFileError(f"{path}: {one_line(error)}; this model is not supported") from error
    return _processor(path, read, features, tokenizer, config)


def _processor(
    path: Path, read: GenerationFields, features: LogMel, tokenizer: Tokenizer, config: Mapping[str, Any]
) -> SpeechProcessor:
    rows = config["vocab_size"]
    multilingual = rows >= MULTILINGUAL if read.is_multilingual is None else read.is_multilingual
    special = {"eos_token_id": (read.eos_token_id, "<|endoftext|>")}
    special |= {"decoder_start_token_id": (read.decoder_start_token_id, START)}
    special |= {"no_timestamps_token_id": (read.no_timestamps_token_id, NO_TIMESTAMPS)}
    ids = {name: tokenizer.id(token) if number is None else number for name, (number, token) in special.items()}
    listed = list(ids.items())
    for name in ("suppress_tokens", "begin_suppress_tokens"):
        listed += [(name, number) for number in getattr(read, name) or () if number != -1]
    languages, tasks = _tokens(read, tokenizer) if multilingual else ({}, {})
    listed += [("lang_to_id", number) for number in languages.values()]
    listed += [("task_to_id", number) for number in tasks.values()]
    for name, number in listed:
        if number is None or not 0 <= number < rows:
            raise ModelFileError(
                f"{path}: {name} must be a token of the network, which has {rows:,}, but is {number}; "
                "download the model again"
            )
    timestamps, needed = rows - 1 - int(ids["no_timestamps_token_id"] or 0), features.frames // 2 + 1
    if timestamps < needed:
        rule = f"there must be {needed:,} tokens of timestamps behind no_timestamps_token_id"
        raise ModelFileError(f"{path}: {rule}, but are {timestamps:,}; download the model again")
    layers, heads = config.get("decoder_layers", 4), config.get("decoder_attention_heads", 6)
    for layer, head in read.alignment_heads or ():
        if not (0 <= layer < layers and 0 <= head < heads):
            rule = f"alignment_heads must be pairs of a layer below {layers} and a head below {heads}"
            raise ModelFileError(f"{path}: {rule}, but one is [{layer}, {head}]; download the model again")
    return SpeechProcessor(
        features=features,
        tokenizer=tokenizer,
        start=int(ids["decoder_start_token_id"] or 0),
        end=int(ids["eos_token_id"] or 0),
        no_timestamps=int(ids["no_timestamps_token_id"] or 0),
        languages=languages,
        tasks=tasks,
        suppressed=tuple(number for number in read.suppress_tokens or () if number != -1),
        suppressed_first=tuple(number for number in read.begin_suppress_tokens or () if number != -1),
        alignment_heads=tuple(read.alignment_heads or ()),
        max_initial_timestamp=read.max_initial_timestamp_index,
        max_length=read.max_length,
        median_filter=read.median_filter_width,
    )


def _tokens(read: GenerationFields, tokenizer: Tokenizer) -> tuple[dict[str, int], dict[str, int]]:
    """Return the tokens of the languages and of the tasks, from the settings or else from the tokenizer."""
    languages = read.lang_to_id or {name: number for name, number in tokenizer.specials.items() if LANGUAGE.match(name)}
    tasks = read.task_to_id or {task: number for task in TASKS if (number := tokenizer.id(f"<|{task}|>")) is not None}
    return {name.strip("<|>"): number for name, number in languages.items()}, dict(tasks)


def generation_config(processor: SpeechProcessor) -> dict[str, Any]:
    """Return what transformers needs to generate text."""
    values: dict[str, Any] = {
        "decoder_start_token_id": processor.start,
        "eos_token_id": processor.end,
        "bos_token_id": processor.end,
        "pad_token_id": processor.end,
        "no_timestamps_token_id": processor.no_timestamps,
        "is_multilingual": bool(processor.languages),
        "suppress_tokens": list(processor.suppressed) or None,
        "begin_suppress_tokens": list(processor.suppressed_first) or None,
        "alignment_heads": [list(pair) for pair in processor.alignment_heads] or None,
        "max_initial_timestamp_index": processor.max_initial_timestamp,
        "max_length": processor.max_length,
        "return_timestamps": False,
    }
    if processor.languages:
        values["lang_to_id"] = {f"<|{code}|>": number for code, number in processor.languages.items()}
        values["task_to_id"] = dict(processor.tasks)
    return {name: value for name, value in values.items() if value is not None}


def write_speech_processor(processor: SpeechProcessor, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and preprocessor_config.json."""
    processor.tokenizer.save(folder / TOKENIZER)
    end = processor.tokenizer.token(processor.end)
    roles = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), end)
    kind = {"tokenizer_class": "WhisperTokenizer", "processor_class": "WhisperProcessor"}
    write_json(folder / TOKENIZER_CONFIG, {**kind, **roles, "add_prefix_space": False})
    write_json(folder / PREPROCESSOR, processor.features.to_json())
