"""Chat logs: every layout is read, bad rows are named with file and line, and what the assistant says is marked."""

import json
from pathlib import Path

import pytest

from saccade.data.formats.chats import chat_layout, conversations, is_chat_log
from saccade.data.tables.problems import BadRows
from saccade.data.tables.sniffing import sniff
from saccade.data.text.chat import SPECIALS, TURN_END, TURN_START, Message, encode_chat, encode_question, from_json
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.tasks import guess_task

HELLO = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there."}]
EXPECTED = [Message("user", "Hello"), Message("assistant", "Hi there.")]


def write(folder: Path, *rows) -> Path:
    path = folder / "chats.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def read(path: Path) -> list[list[Message]]:
    file = sniff(path)
    return [from_json(document.text) for document in conversations(file, chat_layout(file))]


LAYOUTS = {
    "messages": {"messages": HELLO},
    "ShareGPT": {"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi there."}]},
    "conversations with roles": {"id": 3, "conversations": HELLO},
    "instruction": {"instruction": "Hello", "input": "", "output": "Hi there."},
    "response": {"instruction": "Hello", "response": "Hi there."},
    "completion": {"prompt": "Hello", "completion": "Hi there."},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_read(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, LAYOUTS[name], LAYOUTS[name])
    assert read(path) == [EXPECTED, EXPECTED]
    certain = name != "completion"  # two columns of texts may be pairs to translate
    assert is_chat_log(sniff(path)) is certain
    assert not certain or guess_task(path) == "language_model"


def test_an_instruction_has_its_input(tmp_path: Path) -> None:
    path = write(tmp_path, {"instruction": "Translate.", "input": "Hund", "output": "dog"})
    assert read(path) == [[Message("user", "Translate.\n\nHund"), Message("assistant", "dog")]]


def test_other_tables_are_no_chats(tmp_path: Path) -> None:
    for row in ({"text": "a"}, {"messages": "a text"}, {"messages": ["a", "b"]}, {"source": "a", "target": "b"}):
        assert chat_layout(sniff(write(tmp_path, row, row))) == ""
    (tmp_path / "a.csv").write_text("messages,label\na,b\nc,d\n")
    assert chat_layout(sniff(tmp_path / "a.csv")) == ""


BAD = {
    "no list": ({"messages": "Hello"}, "'messages' is missing or no list"),
    "empty": ({"messages": []}, "'messages' is an empty list"),
    "another key": ({"text": "Hello"}, "'messages' is missing or no list"),
    "no object": ({"messages": [*HELLO, "Bye"]}, "message 3 is no object"),
    "no role": ({"messages": [{"content": "Hello"}]}, r"message 1 has no role \(keys: content\)"),
    "odd role": ({"messages": [{"role": "user\n", "content": "a"}]}, "the role of message 1 is 'user\\\\n'"),
    "no content": ({"messages": [HELLO[0], {"role": "assistant"}]}, "the content of message 2 is no text"),
    "empty content": ({"messages": [HELLO[0], {"role": "assistant", "content": " "}]}, "of message 2 is empty"),
    "parts": ({"messages": [{"role": "user", "content": [{"type": "text"}]}, HELLO[1]]}, "of message 1 is no text"),
    "calls": ({"messages": [{**HELLO[1], "tool_calls": [{}]}]}, "message 1 has tool_calls, which cannot be learned"),
    "no assistant": ({"messages": HELLO[:1]}, "no message of the assistant"),
    "control": ({"messages": [{"role": "assistant", "content": "a\u0000b"}]}, r"NUL character U\+0000"),
    "not JSON": ("{", "invalid JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_named_with_file_and_line(name: str, tmp_path: Path) -> None:
    row, message = BAD[name]
    path = write(tmp_path, {"messages": HELLO}, "", row, {"messages": HELLO}, row)
    with pytest.raises(BadRows, match=rf"chats.jsonl:3.*{message}.*") as caught:
        read(path)
    assert [problem.line for problem in caught.value.problems] == [3, 5]


TEXTS = ["user\nHello there, how are you?", "assistant\nHi there. I am fine.\n\nBye", "system\nBe kind."]
TOKENIZERS = {
    "characters": train_tokenizer("characters", [*TEXTS, "<|im_end|>"], 500, SPECIALS),
    "bpe": train_tokenizer("bpe", TEXTS, 300, SPECIALS),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_what_the_assistant_says_is_marked_with_the_end_of_its_turn(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    messages = [Message("system", "Be kind."), *EXPECTED, Message("user", "Bye"), Message("assistant", "\n\nBye")]
    ids, spoken = encode_chat(tokenizer, messages)
    assert len(ids) == len(spoken)
    said = [token for token, mark in zip(ids, spoken, strict=True) if mark]
    assert tokenizer.decode(said).replace("\n", "") == "Hi there.Bye"
    assert said.count(tokenizer.specials[TURN_END]) == 2 and tokenizer.specials[TURN_START] not in said
    text = "".join(f"{message.role}\n{message.content}\n" for message in messages)
    assert tokenizer.decode(ids) == text
    question = encode_question(tokenizer, EXPECTED[:1])
    assert question == encode_chat(tokenizer, EXPECTED)[0][: len(question)]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_message_cannot_end_its_turn(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids, _ = encode_chat(tokenizer, [Message("user", "Hello<|im_end|>")])
    assert ids.count(tokenizer.specials[TURN_END]) == 1
    assert tokenizer.decode(ids) == "user\nHello<|im_end|>\n"
