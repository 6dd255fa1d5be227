"""Whisper as OpenAI publishes it: tokens and settings that its checkpoints do not hold (MIT).

https://github.com/openai/whisper
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saccade.data.text.tiktoken_files import read_tiktoken
from saccade.data.text.vocabularies import byte_level_bpe
from saccade.pretrained.audio_processor import LogMel

# Codes of the languages, in the order of their tokens.
CODES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml "
    "cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am "
    "yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su"
)
TIMESTAMPS = 1501  # 0.00 to 30.00 seconds
# Tokens of speaker names and of sounds that are not speech, such as brackets and notes, in GPT-2's vocabulary.
NOT_SPEECH = (
    *(1, 2, 7, 8, 9, 10, 14, 25, 26, 27, 28, 29, 31, 58, 59, 60, 61, 62, 63, 90, 91, 92, 93, 357, 366, 438, 532, 685),
    *(705, 796, 930, 1058, 1220, 1267, 1279, 1303, 1343, 1377, 1391, 1635, 1782, 1875, 2162, 2361, 2488, 3467, 4008),
    *(4211, 4600, 4808, 5299, 5855, 6329, 7203, 9609, 9959, 10563, 10786, 11420, 11709, 11907, 13163, 13697, 13700),
    *(14808, 15306, 16410, 16791, 17992, 19203, 19510, 20724, 22305, 22935, 27007, 30109, 30420, 33409, 34949, 40283),
    *(40493, 40549, 47282, 49146),
)
END, START, TRANSLATE, NO_TIMESTAMPS = 50_256, 50_257, 50_357, 50_362  # tokens of the models of English
SPACE = 220


def special_tokens() -> list[str]:
    """Return the special tokens in the order of their ids, which follow those of the vocabulary."""
    spoken = [f"<|{code}|>" for code in CODES.split()]
    others = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
    return ["<|endoftext|>", "<|startoftranscript|>", *spoken, *(f"<|{name}|>" for name in others)]


def write_tokenizer(path: Path, target: Path) -> None:
    """Write the tokenizer.json of a vocabulary in the format of tiktoken."""
    vocabulary, merges = read_tiktoken(path)
    timestamps = [f"<|{0.02 * number:.2f}|>" for number in range(TIMESTAMPS)]
    byte_level_bpe(path, vocabulary, merges, special_tokens(), added=timestamps).save(target)


def english_settings(
    dim: int, depth: int, heads: int, alignment_heads: tuple[tuple[int, int], ...]
) -> dict[str, Mapping[str, Any]]:
    """Return the settings of a model of English as transformers stores them, by file."""
    shape = {"layers": depth, "attention_heads": heads, "ffn_dim": 4 * dim}
    ids = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": END, "decoder_start_token_id": START}
    config = {
        "model_type": "whisper",
        "vocab_size": END + 1 + len(special_tokens()) - 1 + TIMESTAMPS,
        "num_mel_bins": 80,
        "d_model": dim,
        **{f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in shape.items()},
        "activation_function": "gelu",
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "tie_word_embeddings": True,
        **ids,
    }
    generation = {
        **ids,
        "no_timestamps_token_id": NO_TIMESTAMPS,
        "is_multilingual": False,
        "suppress_tokens": [*NOT_SPEECH, START, *range(TRANSLATE, NO_TIMESTAMPS)],
        "begin_suppress_tokens": [SPACE, END],
        "alignment_heads": [list(pair) for pair in alignment_heads],
        "max_initial_timestamp_index": 50,
        "max_length": 448,
    }
    return {
        "config.json": config,
        "generation_config.json": generation,
        "preprocessor_config.json": LogMel().to_json(),
    }
