"""Processors: special ids and chat templates of a folder, read, written, and read again."""

import json

import pytest

from saccade.data.text.tokenizers import train_tokenizer
from saccade.errors import ModelFileError
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


def test_the_bos_token_is_put_before_texts_only_where_the_folder_asks_for_it(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    config = {"vocab_size": tokenizer.size, "bos_token_id": 0, "eos_token_id": 1}
    assert read_text_processor(tmp_path, config).bos_id is None
    for value, expected in ((True, 0), (False, None), ("true", None)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": value}))
        assert read_text_processor(tmp_path, config).bos_id == expected


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
