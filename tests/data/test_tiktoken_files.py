"""Vocabularies of tiktoken: merges follow from the ranks; every damaged line is named."""

import base64
import os
from pathlib import Path

import pytest

from saccade.data.text.tiktoken_files import read_tiktoken
from saccade.data.text.vocabularies import byte_level_bpe
from saccade.errors import ModelFileError
from saccade.pretrained.openai_whisper import english_settings, special_tokens, write_tokenizer

PAIRS = (b"th", b"the", b" the", b"in", b"ing")


def lines(tokens=(*(bytes([byte]) for byte in range(256)), *PAIRS)):
    return [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]


def write(path: Path, rows) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def test_merges_follow_from_the_ranks(tmp_path):
    vocabulary, merges = read_tiktoken(write(tmp_path / "v.tiktoken", lines()))
    assert merges == [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("in", "g")]
    assert len(vocabulary) == 261 and vocabulary["Ġthe"] == 258
    tokenizer = byte_level_bpe(tmp_path, vocabulary, merges, ())
    assert tokenizer.encode("the thing") == [257, ord(" "), 256, 260]
    assert tokenizer.decode(tokenizer.encode("çà et là")) == "çà et là"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({3: "Aw== 4"}, r"v\.tiktoken:4: a line must be a new token in base64 and its rank 3, but is 'Aw== 4'"),
        ({3: "A?== 3"}, r"v\.tiktoken:4: a line must be a new token in base64 and its rank 3, but is 'A\?== 3'"),
        ({3: "AA== 3"}, r"v\.tiktoken:4: a line must be a new token in base64 and its rank 3, but is 'AA== 3'"),
        ({256: "YWJjZA== 256"}, r"v\.tiktoken:257: a token must be two tokens of a lower rank, but b'abcd' is 4"),
    ],
)
def test_damaged_lines_are_named(tmp_path, change, message):
    rows = [change.get(number, row) for number, row in enumerate(lines())]
    with pytest.raises(ModelFileError, match=message):
        read_tiktoken(write(tmp_path / "v.tiktoken", rows))


def test_every_byte_is_needed(tmp_path):
    with pytest.raises(ModelFileError, match="must hold each of the 256 bytes, but 0xFF is missing"):
        read_tiktoken(write(tmp_path / "v.tiktoken", lines([bytes([byte]) for byte in range(255)])))


def test_special_tokens_of_whisper_follow_the_vocabulary(tmp_path):
    from saccade.data.text.tokenizers import Tokenizer

    write_tokenizer(write(tmp_path / "v.tiktoken", lines()), tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.specials["<|endoftext|>"] == 261 and tokenizer.specials["<|startoftranscript|>"] == 262
    assert len(special_tokens()) == 107 == len(tokenizer.specials)
    assert tokenizer.id("<|0.00|>") == 261 + 107 and tokenizer.id("<|30.00|>") == tokenizer.size - 1 == 261 + 107 + 1500


def test_settings_of_the_models_of_english_are_those_that_transformers_ships():
    whisper = pytest.importorskip("transformers.models.whisper.configuration_whisper", reason="the oracle")
    settings = english_settings(384, 4, 6, ((1, 0),))
    assert settings["config.json"]["vocab_size"] == 51_864
    suppressed = settings["generation_config.json"]["suppress_tokens"]
    ours, theirs = (sorted(token for token in ids if token < 50_256) for ids in (suppressed, whisper.NON_SPEECH_TOKENS))
    assert ours == theirs and suppressed[len(ours) :] == [50_257, 50_357, 50_358, 50_359, 50_360, 50_361]


def test_the_vocabulary_of_gpt2_is_converted_exactly(tmp_path):
    import json

    folder = Path(os.environ.get("SACCADE_DATA", "/nonexistent")) / "vocab"
    if not folder.is_dir():
        pytest.skip("SACCADE_DATA has no vocab/")
    vocabulary = json.loads((folder / "gpt2_vocab.json").read_text())
    from saccade.data.text.alphabets import token_bytes

    ordered = sorted((rank, token) for token, rank in vocabulary.items() if token != "<|endoftext|>")
    path = write(tmp_path / "v.tiktoken", lines([token_bytes(token) for _, token in ordered]))
    converted, merges = read_tiktoken(path)
    assert {**converted, "<|endoftext|>": 50_256} == vocabulary
    expected = (folder / "gpt2_merges.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    assert merges == [tuple(line.split(" ")) for line in expected if not line.startswith("#version")]
