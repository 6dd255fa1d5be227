"""Processors: special ids and chat templates of a folder, read, written, and read again."""

import json

import pytest

from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.errors import ModelFileError, UsageError
from saccade.pretrained.processors import (
    TextProcessor,
    generation_config,
    read_text_processor,
    token_ids,
    write_text_processor,
)


@pytest.fixture
def tokenizer():
    return train_tokenizer("bpe", ["the cat sat on the mat"], 270, ("<s>", "</s>"))


def test_a_processor_is_written_and_read_again(tokenizer, tmp_path):
    processor = TextProcessor(tokenizer, bos_id=0, eos_ids=(1, 5), chat_template="{{ messages }}")
    write_text_processor(processor, tmp_path)
    again = read_text_processor(tmp_path, {"vocab_size": tokenizer.size, **generation_config(processor)})
    assert (again.bos_id, again.eos_ids, again.decoder_start_id) == (0, (1, 5), None)
    assert again.chat_template == "{{ messages }}" and again.target_tokenizer is None
    assert again.tokenizer.encode("the cat") == tokenizer.encode("the cat")
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (settings["bos_token"], settings["eos_token"]) == ("<s>", "</s>")


def test_a_tokenizer_that_transformers_would_replace_is_not_written_in_silence(tokenizer, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", "vocab_size": tokenizer.size}))
    with pytest.raises(UsageError, match="opens every qwen2 with the rules of its own tokenizer, but this model has"):
        write_text_processor(TextProcessor(tokenizer), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": tokenizer.size}))
    write_text_processor(TextProcessor(tokenizer), tmp_path)


def test_a_prompt_of_our_own_model_has_no_special_tokens(tokenizer, tmp_path):
    text = "the<s>cat</s>"
    assert TextProcessor(tokenizer).encode_prompt(text) == tokenizer.encode(text)
    assert not {0, 1} & set(tokenizer.encode(text))
    tokenizer.save(tmp_path / "tokenizer.json")
    pretrained = read_text_processor(tmp_path, {"vocab_size": tokenizer.size})
    assert pretrained.encode_prompt(text) == [*tokenizer.encode("the"), 0, *tokenizer.encode("cat"), 1]


def test_the_ends_of_generation_config_come_first(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    config = {"vocab_size": tokenizer.size, "bos_token_id": 3, "eos_token_id": [4, 5]}
    read = lambda: read_text_processor(tmp_path, config)  # noqa: E731
    assert (read().bos_id, read().eos_ids) == (3, (4, 5))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 0], "bos_token_id": 7}')
    assert (read().bos_id, read().eos_ids) == (7, (1, 0))
    (tmp_path / "generation_config.json").write_text("{}")
    assert (read().bos_id, read().eos_ids) == (None, ())
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(ModelFileError, match=r"generation_config\.json: .* must be a JSON object, but is not"):
        read()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, (3,)), ([3, 1], (3, 1)), (0, (0,)), (None, ()), (9, ()), (-1, ()), (True, ()), ("3", ()), ([9, 2], (2,))],
)
def test_only_ids_of_the_vocabulary_are_taken(value, expected):
    assert token_ids(value, 9) == expected


def test_generation_needs_an_end(tokenizer):
    assert generation_config(TextProcessor(tokenizer)) == {}
    assert generation_config(TextProcessor(tokenizer, eos_ids=(1,))) == {"eos_token_id": 1, "bos_token_id": 1}
    assert generation_config(TextProcessor(tokenizer, bos_id=0, eos_ids=(1,))) == {"eos_token_id": 1, "bos_token_id": 0}


def test_a_tokenizer_larger_than_the_embedding_is_refused(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    with pytest.raises(ModelFileError, match=rf"must have at most 9 tokens .* but has {tokenizer.size}; download both"):
        read_text_processor(tmp_path, {"vocab_size": 9})
