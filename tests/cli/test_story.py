"""`saccade story`: any language model, through a pipe and at a terminal."""

import json

import pytest

from tests.cli.test_chat import TINY, Terminal, call, write_folder
from tests.data.chat_template_texts import TEMPLATES

SHORT = ("-o", "max_new_tokens=6")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A folder with runs of characters and of byte pairs, and a pretrained model with a chat template."""
    folder = tmp_path_factory.mktemp("story")
    (folder / "book.txt").write_text("".join(f"line {number * 37 % 101} says so\n" for number in range(200)))
    (folder / "game.txt").write_text("".join(f"> You walk {number * 37 % 101} steps.\n" for number in range(300)))
    write_folder(folder / "llama", TEMPLATES["ChatML"], 8192)
    write_folder(folder / "short", "", 200)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        for name, tokenizer in (("book", "characters"), ("game", "bpe")):
            settings = [f"data.tokenizer={tokenizer}", "data.vocabulary_size=280", *TINY]
            result = call("train", f"{name}.txt", "--name", name, "--steps", "4", *settings)
            assert result.exit_code == 0, result.stderr
        yield folder


def test_a_story_is_told_through_a_pipe(workspace):
    lines = "walk 3 steps\n\n/retry\n/save told.json\n/save told.txt\n/branches\n"
    result = call("story", "./short", "--opening", "You walk.", *SHORT, stdin=lines)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("You walk.\n\n> You walk 3 steps.\n\n")
    saved = json.loads((workspace / "told.json").read_text())
    assert saved["opening"] == "You walk." and [turn["parent"] for turn in saved["turns"]] == [0, 1, 1]
    assert [turn["action"] for turn in saved["turns"]] == ["You walk 3 steps.", "", ""]
    assert saved["current"] == 3 and "*  2  2 turns" in result.stderr
    assert (workspace / "told.txt").read_text().startswith("You walk.\n\n> You walk 3 steps.\n\n")
    again = call("story", "./short", "--load", "told.json", *SHORT, stdin="/switch 1\n")
    assert again.exit_code == 0 and again.stdout == (workspace / "told.txt").read_text()


def test_every_turn_is_an_object_of_json(workspace):
    result = call("story", "./short", "--opening", "You walk.", *SHORT, "--json", stdin="walk 3 steps\n\n")
    opening, *turns = map(json.loads, result.stdout.splitlines())
    assert opening == {"opening": "You walk."}
    assert [turn["action"] for turn in turns] == ["You walk 3 steps.", ""] and turns[-1]["turn"] == 2
    assert turns[0]["context"]["size"] == 200


def test_the_limit_of_the_context_is_shown(workspace):
    result = call("story", "game", "--opening", "You walk.", *SHORT, stdin="walk 1 steps\n" * 8 + "/context\n")
    assert "(context full: the model no longer sees turn 1 of" in result.stderr
    shown = result.stderr.index("---- the model sees the opening and what follows ----")
    assert result.stderr.index("---- the model does not see this part ----") < shown
    assert "the model sees the opening and turns" in result.stderr


def test_a_model_of_few_characters_gets_the_turns_without_a_marker(workspace):
    result = call("story", "book", "--opening", "line 3 says so", *SHORT, stdin="\nyou lin\n")
    assert "(the tokenizer of the model has no '>': it gets the turns without it)" in result.stderr
    assert result.exit_code == 3  # the text has no Y either
    assert "<stdin>:2: character" in result.stderr and "is 'Y' (U+0059), expected one seen" in result.stderr
    assert result.stdout.startswith("line 3 says so\n")


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "message"),
    [
        (["game", "--form", "messages"], "", 2, "needs a model with a chat template, but this one has none"),
        (["game", "--opening", "a", "--load", "b.json"], "", 2, "--opening cannot be combined with --load"),
        (["game", "--load", "none.json"], "", 3, "none.json cannot be read"),
        (["game", "--opening", "you " * 80], "", 2, "must have fewer tokens than the context of 64, but have"),
        (["game"], "", 2, "the opening and the action must have fewer tokens than the context of 64"),
        (["book"], "", 3, "is 'Y' (U+0059), expected one seen when the tokenizer was trained"),
        (
            ["game", "--opening", "You."],
            "/undo\n",
            2,
            "<stdin>:1: there is nothing to undo: the story is at its opening",
        ),
        (["game", "-o", "seeds=3"], "", 2, "no setting 'seeds'; did you mean 'seed'?"),
    ],
)
def test_a_mistake_has_one_message_and_an_exit_code(arguments, stdin, code, message, workspace):
    result = call("story", *arguments, stdin=stdin)
    assert result.exit_code == code, result.stderr
    assert message in result.stderr and "Traceback" not in result.stderr


def test_at_a_terminal_ctrl_c_ends_a_turn_and_keeps_it(workspace):
    terminal = Terminal(workspace, "story", "./llama", "--opening", "It is night.", "-o", "max_new_tokens=8000")
    assert "It is night." in terminal.wait_for("\n> ")
    terminal.send("open the door\n")
    terminal.wait_for("door\r\n")
    terminal.wait_for_text()
    terminal.send("\x03")
    terminal.wait_for("(interrupted)")
    assert "turn 1; context: " in terminal.wait_for("> ")
    terminal.send("/save night.json\n")
    terminal.wait_for("saved night.json")
    (turn,) = json.loads((workspace / "night.json").read_text())["turns"]
    assert turn["action"] == "You open the door." and turn["text"].strip()
    terminal.send("/undo\n")
    terminal.wait_for("turn 0: ...It is night.")
    terminal.wait_for("\n> ")
    terminal.send("\x04")
    assert terminal.end() == 0 and "Traceback" not in terminal.output


def test_smollm2_tells_a_story(get_model):
    get_model("smollm2")
    result = call(
        "story", "smollm2", "-o", "max_new_tokens=40", "-o", "temperature=0", "--json", stdin="open the door\n"
    )
    turn = json.loads(result.stdout.splitlines()[1])
    assert len(turn["text"].split()) > 5 and "> You" not in turn["text"]
