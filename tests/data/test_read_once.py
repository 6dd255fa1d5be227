"""Every file is parsed once and tokenized once, whoever asks: prepare, load_data, evaluate, and the next run."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from saccade.config import override
from saccade.core import Split
from saccade.data.formats import corpus, labelled, pairs, squad, tagged
from saccade.data.text.alphabets import CharacterTable
from saccade.data.text.sentences import cut_sentences
from saccade.data.text.tokenizers import Tokenizer
from saccade.tasks import load_task
from tests.tasks.battery import Trial

PARSERS = {
    "translation": (pairs, "parse_pairs"),
    "summarisation": (pairs, "parse_pairs"),
    "text_classification": (labelled, "parse_labelled"),
    "regression": (labelled, "parse_labelled"),
    "sentence_vectors": (labelled, "parse_labelled"),
    "tagging": (tagged, "parse_tagged"),
    "question_answering": (squad, "parse_squad"),
    "language_model": (corpus, "documents"),
    "masked_language_model": (corpus, "documents"),
}


def expected_texts(name: str, path: Path) -> Counter[str]:
    """The texts of a file of the battery."""
    lines = path.read_text().splitlines()
    if name in ("translation", "summarisation"):
        return Counter(side for line in lines for side in line.split("\t"))
    if name in ("text_classification", "regression", "sentence_vectors"):
        return Counter(text for line in lines[1:] for text in line.split("\t")[:-1])
    if name == "tagging":
        return Counter(line.split(" ")[0] for line in lines if line)
    if name == "question_answering":
        paragraphs = [article["paragraphs"][0] for article in json.loads(path.read_text())["data"]]
        contexts = {paragraph["context"] for paragraph in paragraphs}
        return Counter(contexts) + Counter(one["qas"][0]["question"] for one in paragraphs)
    text = path.read_text()
    cut = int(len(text) * 0.9)
    if name == "masked_language_model":
        return Counter(sentence for part in (text[:cut], text[cut:]) for sentence in cut_sentences(part))
    return Counter((text[:cut], text[cut:]))


class Counts:
    """How often files were parsed and which texts were tokenized."""

    def __init__(self) -> None:
        self.parsed = 0
        self.texts: Counter[str] = Counter()


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    counts = Counts()

    def count_parses(module: Any, name: str) -> None:
        original = getattr(module, name)

        def parse(*arguments: Any, **options: Any) -> Any:
            counts.parsed += 1
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, parse)

    for module, name in set(PARSERS.values()):
        count_parses(module, name)

    def count_texts(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def encode(self: Any, texts: Any) -> Any:
            counts.texts.update([texts] if isinstance(texts, str) else texts)
            return original(self, texts)

        monkeypatch.setattr(owner, name, encode)

    count_texts(Tokenizer, "_run")
    count_texts(Tokenizer, "encode_with_offsets")
    count_texts(CharacterTable, "encode")
    yield counts


@pytest.mark.parametrize("name", PARSERS)
def test_a_file_is_parsed_once_and_tokenized_once(name: str, tmp_path: Path, counts: Counts) -> None:
    trial, task = Trial.of(name), load_task(name)
    config, path = override(task.Config(), trial.settings), trial.write_data(tmp_path)
    expected = expected_texts(name, path)
    task.prepare(config, path, tmp_path)
    assert counts.parsed == 1
    opened = task.open(config, tmp_path)
    opened.load_data(path)
    source = opened.source(Split.TRAIN, 0)
    for step in range(3):
        source.at(step)
    opened.evaluate(Split.VALID, quick=True)
    opened.evaluate(Split.VALID)
    counts.texts.pop("\n", None)  # what separates the rows of running text
    assert counts.parsed == 1
    assert counts.texts == expected

    again = task.open(config, tmp_path)  # a later run, or `evaluate` on the same file
    again.load_data(path, eval_only=name not in ("language_model", "masked_language_model"))
    again.source(Split.VALID, 0).at(0)
    counts.texts.pop("\n", None)
    assert counts.parsed == 1
    assert counts.texts == expected
