"""Conversations: what is undone was done last, turns leave whole, and a saved one is a chat log."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.formats.chats import chat_layout, conversations
from saccade.data.tables.sniffing import sniff
from saccade.errors import DataError, UsageError
from saccade.interactive.conversation import Conversation, read_conversation, write_conversation

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)
roles = st.sampled_from(["user", "assistant", "system", "tool"])
messages = st.lists(st.tuples(roles, texts), max_size=12).map(lambda rows: Conversation(tuple(rows)))


def talk(count: int) -> Conversation:
    conversation = Conversation().with_system("Be kind.")
    for number in range(count):
        conversation = conversation.ask(f"q{number}").answer(f"a{number}")
    return conversation


@given(messages)
def test_the_turns_are_all_messages_after_the_system(conversation):
    turns = [message for turn in conversation.turns for message in turn]
    first = (
        [("system", conversation.system)]
        if conversation.messages[:1] and conversation.messages[0][0] == "system"
        else []
    )
    assert (*first, *turns) == conversation.messages
    assert all(role != "user" for turn in conversation.turns for role, _ in turn[1:])


@given(messages, texts, texts)
def test_undo_takes_back_a_question_with_its_answer(conversation, question, answer):
    asked = conversation.ask(question)
    before = Conversation(conversation.messages[:-1]) if conversation.unanswered else conversation
    assert asked.question == question and asked.unanswered
    assert asked.answer(answer).undo() == asked.undo() == before
    assert asked.answer(answer).unanswer() == asked


@given(messages, texts)
def test_the_system_is_replaced_and_removed_without_the_turns(conversation, text):
    changed = conversation.with_system(text)
    assert changed.system == text and changed.turns == conversation.with_system("").turns
    assert changed.clear().messages == (("system", text),)


@given(messages, st.integers(0, 15))
def test_the_oldest_turns_are_removed_whole(conversation, count):
    shorter = conversation.without_oldest(count)
    assert shorter.turns == conversation.turns[count:] and shorter.system == conversation.system


def test_nothing_to_undo_or_to_answer_is_named():
    with pytest.raises(UsageError, match="nothing to undo: the conversation is empty"):
        Conversation().with_system("a").undo()
    with pytest.raises(UsageError, match="nothing to answer again: the user has not written yet"):
        Conversation().unanswer()


@given(conversation=messages)
def test_a_saved_conversation_is_read_again(conversation, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "a.jsonl"
    write_conversation(conversation, path)
    assert read_conversation(path) == conversation
    assert len(path.read_text(encoding="utf-8").splitlines()) >= 1


def test_a_saved_conversation_is_a_chat_log_to_train_on(tmp_path):
    path = tmp_path / "a.jsonl"
    write_conversation(talk(3), path)
    file = sniff(path)
    (document,) = conversations(file, chat_layout(file))
    assert json.loads(document.text) == [list(message) for message in talk(3).messages]


BAD = {
    "not JSON": ("{", r"invalid JSON \(.*\), expected one JSON object"),
    "two lines": ('{"messages": []}\n{"messages": []}\n', r"invalid JSON \(Extra data"),
    "a list": ("[]", "no JSON object"),
    "another file": ('{"story": 1}', "no list 'messages', expected a conversation; name a file that /save has written"),
    "no role": ('{"messages": [{"content": "a"}]}', "message 1 is \"{'content': 'a'}\", expected an object with role"),
    "odd role": ('{"messages": [{"role": "a b", "content": "a"}]}', "message 1 is .*expected an object with role"),
    "a number": ('{"messages": [{"role": "user", "content": "a"}, 3]}', "message 2 is '3'"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named(name, tmp_path):
    content, message = BAD[name]
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=f"a.json: {message}"):
        read_conversation(tmp_path / "a.json")


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(
        DataError, match=r"none\.json cannot be read: No such file.*; name a file that /save has written"
    ):
        read_conversation(tmp_path / "none.json")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_conversation(tmp_path)
    with pytest.raises(UsageError, match=r"there is no folder .*none for a.json; create it"):
        write_conversation(talk(1), tmp_path / "none" / "a.json")
