"""Vocabularies of pretrained models: the same ids as transformers, and invalid files are refused with the line."""

import json
import os
import shutil
from pathlib import Path

import pytest

from saccade.data.text import tokenizer_checks, vocabularies
from saccade.data.text.alphabets import BYTES
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import BERT, END, Tokenizer
from saccade.data.text.vocabularies import PRE_TOKENIZERS, byte_level_bpe, read_tokenizer
from saccade.errors import ModelFileError

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

NASTY = [
    "",
    " ",
    "\n",
    "  two  spaces and a tab\t.\r\n\r\nnext",
    "Hello, World! It's 2024; we're 3.14159 and 1,000,000.",
    "Café naïve Ångström ŒUVRE İstanbul ß ſ ﬁ e\u0301 \u1e69\u0323",
    "中文字符 mixed with 日本語テキスト and 한국어",
    "emoji 😀 family 👨‍👩‍👧‍👦 flag 🇩🇪 skin 👍🏽",
    "١٢٣ ⅷ ² ½ 数字１２３",
    "zero\u200bwidth soft\u00adhyphen nbsp\u00a0here bom\ufeff null\u0000 bell\u0007 replacement\ufffd",
    "line\u2028separator paragraph\u2029separator next\u0085line",
    "a" * 250,
    "don't can't DON'T ##ing [unused1] <|not|> §±µ",
    "עברית العربية हिन्दी ไทย Ελληνικά Кириллица",
    "\U0010ffff \U000e0001 \ue000",
]


def read(folder: Path, model_type: str = "") -> Tokenizer:
    usual = "bert" if (folder / "vocab.txt").exists() else "gpt2"
    return read_tokenizer(folder, {"model_type": model_type or usual})


def word_pieces(folder: Path, lowercase: bool = True, **settings) -> Path:
    """A small vocabulary of BERT's kind as a folder."""
    trained = train_tokenizer("wordpiece", NASTY, 900, lowercase=lowercase)
    folder.mkdir(exist_ok=True)
    tokens = [trained.token(number) for number in range(trained.size)]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8", newline="\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase, **settings}))
    return folder


def pairs(folder: Path, specials=(END,), settings=None) -> Path:
    """A small byte-level vocabulary as a folder."""
    trained = train_tokenizer("bpe", NASTY, 420, specials)
    model = json.loads(trained._saved)["model"]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8", newline="\n")
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def agree(ours: Tokenizer, theirs) -> None:
    for text in NASTY:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text
    assert {name: ours.id(name) for name in theirs.all_special_tokens} == {
        name: theirs.convert_tokens_to_ids(name) for name in theirs.all_special_tokens
    }


@pytest.mark.parametrize("settings", [{}, {"strip_accents": False}, {"tokenize_chinese_chars": False}])
@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces_are_those_of_transformers(lowercase, settings, tmp_path):
    folder = word_pieces(tmp_path / "a", lowercase, **settings)
    ours = read(folder)
    agree(ours, transformers.BertTokenizer.from_pretrained(folder))
    assert list(ours.specials) == list(BERT)


def test_settings_of_word_pieces_change_the_ids(tmp_path):
    plain = read(word_pieces(tmp_path / "a"))
    assert plain.encode("CAFÉ") == plain.encode("cafe")
    cased = read(word_pieces(tmp_path / "b", lowercase=False))
    assert cased.encode("CAFÉ") != cased.encode("cafe")


@pytest.mark.parametrize(
    "settings", [None, {"add_prefix_space": True}, {"eos_token": {"__type": "AddedToken", "content": END}}]
)
def test_byte_pairs_are_those_of_transformers(settings, tmp_path):
    folder = pairs(tmp_path / "a", settings=settings)
    ours = read(folder)
    agree(ours, transformers.GPT2Tokenizer.from_pretrained(folder))
    assert list(ours.specials) == [END]


def test_the_byte_pairs_of_roberta_are_those_of_transformers(tmp_path):
    folder = pairs(tmp_path / "a", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    ours = read(folder, "roberta")
    theirs = transformers.RobertaTokenizer.from_pretrained(folder)
    agree(ours, theirs)
    assert ours.specials == {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4}
    ours.save(tmp_path / "tokenizer.json")
    again = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert again("a dog")["input_ids"] == theirs("a dog")["input_ids"]


def test_the_real_vocabularies_give_the_ids_of_transformers(tmp_path, dataset):
    folder = dataset("vocab")
    shutil.copy(folder / "bert-base-uncased_vocab.txt", tmp_path / "vocab.txt")
    ours = read(tmp_path)
    agree(ours, transformers.BertTokenizer.from_pretrained(tmp_path))
    assert ours.size == 30522 and ours.encode("hello world") == [7592, 2088]
    (tmp_path / "vocab.txt").unlink()
    shutil.copy(folder / "gpt2_vocab.json", tmp_path / "vocab.json")
    shutil.copy(folder / "gpt2_merges.txt", tmp_path / "merges.txt")
    ours = read(tmp_path)
    agree(ours, transformers.GPT2Tokenizer.from_pretrained(tmp_path))
    assert ours.size == 50257 and ours.encode("Hello world") == [15496, 995]


def test_a_tokenizer_json_comes_first_and_passes_the_checks(tmp_path):
    folder = pairs(tmp_path / "a")
    train_tokenizer("characters", ["abc"], 10).save(folder / "tokenizer.json")
    assert read(folder, "llama").kind == "characters"
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFileError, match="the model must be one of BPE"):
        read(folder)


def test_added_tokens_are_numbered_on(tmp_path):
    folder = pairs(tmp_path / "a", settings={"pad_token": "[PAD]"})
    (folder / "added_tokens.json").write_text('{"[PAD]": 420}')
    ours = read(folder)
    assert ours.specials == {END: 0, "[PAD]": 420} and ours.size == 421
    (folder / "added_tokens.json").write_text('{"[PAD]": 7}')
    with pytest.raises(ModelFileError, match="ids of added tokens must follow from 420, but do not"):
        read(folder)


@pytest.mark.parametrize("cut", PRE_TOKENIZERS)
def test_every_way_to_cut_words_brings_any_text_back(cut, tmp_path):
    vocabulary = {character: number for number, character in enumerate(BYTES)}
    merged = {**vocabulary, "12": 256, "123": 257, "Ġa": 258}
    ours = byte_level_bpe(tmp_path, merged, [("1", "2"), ("12", "3"), ("Ġ", "a")], [], pre_tokenizer=cut)
    alone = cut in ("smollm", "qwen2")
    assert ours.encode("123") == ([merged[digit] for digit in "123"] if alone else [257])
    for text in NASTY[:5]:
        assert ours.decode(ours.encode(text)) == text


BAD = {
    "no files": ({}, "must hold tokenizer.json, vocab.txt, or vocab.json with merges.txt, but does not"),
    "merges alone": ({"merges.txt": "a b\n"}, "must hold tokenizer.json"),
    "empty": ({"vocab.txt": ""}, "must have one token per line, but is empty"),
    "twice": (
        {"vocab.txt": "[UNK]\n[CLS]\n[SEP]\nx\nx\n"},
        "vocab.txt:5: tokens must be unique, but 'x' is in line 4",
    ),
    "long": (
        {"vocab.txt": "[UNK]\n" + "x" * 1025},
        "vocab.txt:2: a line must have at most 1,024 characters, but has 1,025",
    ),
    "unknown": ({"vocab.txt": "a\nb\n"}, r"must be in the vocabulary, but '\[UNK\]' is not"),
    "flag": (
        {"vocab.txt": "[UNK]\n[CLS]\n[SEP]\n", "tokenizer_config.json": '{"do_lower_case": "no"}'},
        "do_lower_case must be true or false, but is 'no'",
    ),
    "special": (
        {"vocab.txt": "[UNK]\n[CLS]\n[SEP]\n", "tokenizer_config.json": '{"mask_token": [1]}'},
        r"mask_token must be a short text, but is '\[1\]'",
    ),
    "numbers": ({"vocab.json": '{"a": -1}', "merges.txt": ""}, "from 0 to 2,000,000, but 'a' has -1"),
    "same number": ({"vocab.json": '{"a": 1, "b": 1}', "merges.txt": ""}, "must be unique, but one occurs twice"),
    "merge": (
        {"vocab.json": '{"a": 0, "b": 1}', "merges.txt": "#version: 0.2\na b\n"},
        "merges.txt:2: a merge must be two tokens of the vocabulary that together are a third, but is 'a b'",
    ),
    "no space": ({"vocab.json": '{"a": 0}', "merges.txt": "aa\n"}, "merges.txt:1: a merge must be two tokens"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_files_are_refused_with_line_and_rule(name, tmp_path):
    files, message = BAD[name]
    for path, content in files.items():
        (tmp_path / path).write_text(content)
    with pytest.raises(ModelFileError, match=message):
        read(tmp_path)


def test_files_and_lists_have_a_largest_size(tmp_path, monkeypatch):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\nx\n")
    monkeypatch.setattr(vocabularies, "MAX_VOCABULARY", 3)
    with pytest.raises(ModelFileError, match="must have at most 3 lines, but has 4"):
        read(tmp_path)
    monkeypatch.setattr(tokenizer_checks, "MAX_BYTES", 5)
    with pytest.raises(ModelFileError, match="at most 5 bytes, but has 20"):
        read(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "vocab.txt")
    with pytest.raises(ModelFileError, match="must be a regular file"):
        read(tmp_path)
