"""Chats: history, answers that are undone and repeated, the limit of the context, interruptions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import DataError, UsageError
from saccade.interactive.chat import Chat, fit
from saccade.interactive.conversation import Conversation
from saccade.interactive.writer import Writer, WritingOptions


@pytest.fixture
def chat(engine, output):
    return Chat(Writer(engine, WritingOptions(max_new_tokens=50)), output)


def test_the_history_is_sent_with_every_message(chat, engine, output):
    engine.answers = ["Hi.", "Fine."]
    chat.handle("Hello")
    chat.handle("How are you?")
    assert engine.prompts == ["[u]Hello[a]", "[u]Hello[a]Hi.[u]How are you?[a]"]
    assert "".join(output.texts) == "Hi.Fine." and output.texts[:3] == ["H", "i", "."]
    first, second = output.records
    assert (first["message"], first["answer"], first["finish"]) == ("Hello", "Hi.", "stop")
    assert second["context"] == {"used": len(engine.prompts[1]) + 5, "size": 1000, "dropped_turns": 0}
    assert chat.status == "context: 37 of 1,000 tokens (4%)"


def test_a_retry_replaces_the_answer_with_another_seed(chat, engine):
    engine.answers = ["One.", "Two."]
    chat.handle("Count")
    seed = engine.requests[0].seed
    chat.handle("/retry")
    assert chat.conversation.messages == (("user", "Count"), ("assistant", "Two."))
    assert engine.prompts[0] == engine.prompts[1] and seed == 1


def test_undo_clear_and_system_change_what_is_sent(chat, engine, output):
    chat.handle("a")
    chat.handle("b")
    chat.handle("/undo")
    assert output.notes[-1] == "taken back: b"
    chat.handle("/system Be kind.")
    chat.handle("c")
    assert engine.prompts[-1] == "[s]Be kind.[u]a[a]Yes.[u]c[a]"
    chat.handle("/clear")
    chat.handle("d")
    assert engine.prompts[-1] == "[s]Be kind.[u]d[a]"
    chat.handle("/system")
    assert chat.conversation.system == "" and output.notes[-1] == "system: none"


def test_a_line_with_two_slashes_is_a_message_and_an_empty_one_nothing(chat, engine):
    chat.handle("//etc is a folder")
    chat.handle("  ")
    assert engine.prompts == ["[u]/etc is a folder[a]"]


def test_an_unknown_command_suggests_one(chat, engine):
    with pytest.raises(UsageError, match=r"no command '/retri'; did you mean '/retry'\?.*is written with //"):
        chat.handle("/retri")
    with pytest.raises(UsageError, match=r"/save needs the name of a file, such as /save evening\.jsonl"):
        chat.handle("/save")
    assert not engine.prompts


def test_options_are_set_and_listed(chat, engine, output):
    chat.handle("/set temperature=0.25")
    assert output.notes == ["temperature=0.25"]
    chat.handle("Hello")
    chat.handle("/set")
    assert "temperature=0.25" in output.notes[-1] and "max_new_tokens=50" in output.notes[-1]
    for wrong, message in (
        ("temperature=hot", "temperature must be .*number, but is 'hot'"),
        ("temperature=-1", "temperature must be 0 or more, but is -1"),
        ("temprature=1", "no setting 'temprature'; did you mean 'temperature'?"),
        ("max_new_tokens=0", "max_new_tokens must be at least 1, but is 0"),
        ("seed=-1", "seed must be at least 0"),
        ("hot", "must be written name=value, but is 'hot'"),
    ):
        with pytest.raises(UsageError, match=message):
            chat.handle(f"/set {wrong}")
    assert chat.writer.options.temperature == 0.25


def test_help_names_every_command(chat, output):
    chat.handle("/help")
    for name in ("help", "undo", "retry", "system", "save", "load", "clear", "set", "context", "exit"):
        assert any(line.startswith(f"/{name}") for line in output.notes[-1].splitlines()), name
    assert chat.handle("/exit") is False and chat.handle("/help") is False


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12), room=st.integers(1, 40))
def test_the_oldest_turns_leave_a_full_context_whole(make_engine, sizes, room):
    engine, conversation = make_engine(100), Conversation().with_system("Be kind.")
    for number, size in enumerate(sizes):
        conversation = conversation.ask(chr(97 + number) * size).answer("x")
    conversation = conversation.ask("?")
    ids, dropped = fit(engine, conversation, room)
    text = "".join(map(chr, ids))
    assert text.startswith("[s]Be kind.") and text.endswith("[u]?[a]")
    assert text.count("[u]") == len(conversation.turns) - dropped
    assert len(ids) + room <= 100
    if dropped:  # no fewer would have been enough
        assert len(engine.encode_chat(conversation.without_oldest(dropped - 1).to_messages())) + room > 100


def test_dropped_turns_are_named_and_listed(make_engine, output):
    engine = make_engine(80)
    chat = Chat(Writer(engine, WritingOptions(max_new_tokens=20)), output, "Be kind.")
    for number in range(5):
        chat.handle(f"message {number}")
    assert [record["context"]["dropped_turns"] for record in output.records] == [0, 0, 1, 2, 3]
    assert output.notes == [
        "(context full: the model no longer sees the oldest turn of 3)",
        "(context full: the model no longer sees the 2 oldest turns of 4)",
        "(context full: the model no longer sees the 3 oldest turns of 5)",
    ]
    assert engine.prompts[-1] == "[s]Be kind.[u]message 3[a]Yes.[u]message 4[a]"
    assert len(chat.conversation.turns) == 5  # kept, but not sent
    chat.handle("/context")
    marker = output.notes.index("---- the model sees only what follows ----")
    assert output.notes[marker - 1 :] == ["  3 message 2", output.notes[marker], "  4 message 3", "  5 message 4"]


def test_a_message_longer_than_the_context_is_refused_and_not_kept(chat, engine):
    chat.handle("short")
    with pytest.raises(
        UsageError, match=r"must have fewer tokens than the context of 1,000, but has 1,206; shorten it"
    ):
        chat.handle("x" * 1200)
    assert chat.conversation.question == "short"


def test_an_interrupted_answer_is_kept(chat, engine, output):
    engine.answers, output.stop_after = ["A long answer."], 4
    chat.handle("Hello")
    assert chat.conversation.messages[-1] == ("assistant", "A lo")
    assert output.notes == ["(interrupted)"] and output.records[0]["finish"] == "interrupted"
    assert len(engine) == 0
    output.stop_after = 0
    chat.handle("And?")
    assert chat.conversation.unanswered  # nothing was written
    output.stop_after = None
    chat.handle("What?")
    assert engine.prompts[-1] == "[u]Hello[a]A lo[u]What?[a]"


def test_an_answer_that_ends_early_says_why(chat, engine, output):
    engine.answers = ["x" * 60, "", "y" * 960]
    chat.handle("Hello")
    assert output.notes[-1] == "(ended early: max_new_tokens=50)"
    chat.handle("Hello?")
    assert output.notes[-1] == "(the model has written nothing; /retry asks again)"
    chat.handle("/retry")
    assert output.notes[-1] == "(ended early: max_new_tokens=50)"


def test_saved_conversations_are_continued_and_other_files_not_replaced(chat, engine, output, tmp_path):
    chat.handle("Hello")
    path = tmp_path / "a.jsonl"
    chat.handle(f"/save {path}")
    chat.handle("More")
    chat.handle(f"/save {path}")
    assert len(json.loads(path.read_text())["messages"]) == 4
    other = Chat(Writer(engine, WritingOptions()), output)
    with pytest.raises(UsageError, match=r"a.jsonl exists, and was not loaded or saved here; name another file"):
        other.handle(f"/save {path}")
    other.handle(f"/load {path}")
    assert other.conversation == chat.conversation and output.notes[-1].endswith("a.jsonl: 2 turns")
    other.handle(f"/save {path}")
    (tmp_path / "b.json").write_text('{"messages": [{"role": "user", "content": "Open?"}]}')
    other.handle(f"/load {tmp_path / 'b.json'}")
    assert output.notes[-1] == "the last message has no answer; /retry answers it"
    other.handle("/retry")
    assert engine.prompts[-1] == "[u]Open?[a]"
    with pytest.raises(DataError, match="cannot be read"):
        other.handle("/load none.json")


def test_a_model_without_a_template_is_refused_before_the_first_message(make_engine, output):
    with pytest.raises(UsageError, match="needs a model with a chat template"):
        Chat(Writer(make_engine(template=False), WritingOptions()), output)
