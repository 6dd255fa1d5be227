"""Stories: a tree of turns in which nothing is lost, the text that the model gets, and the limit of its context."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import DataError, UsageError
from saccade.interactive.story import Story, Turn, as_action, read_story, write_story
from saccade.interactive.telling import GO_ON, REQUEST, STOPS, Prompt, StoryTelling
from saccade.interactive.writer import Writer, WritingOptions

words = st.text("abc ", min_size=1, max_size=8).map(lambda text: f"x{text}")
steps = st.lists(st.one_of(st.tuples(words, words), st.sampled_from(["undo", "branch", "switch"])), max_size=15)


def grow(steps) -> Story:
    story = Story("Once.")
    for step in steps:
        if step == "undo":
            story = story.undo() if story.current else story
        elif step == "branch":
            story = story.back_to(len(story.path) // 2)
        elif step == "switch":
            story = story.switch(1) if story.turns else story
        else:
            story = story.add(*step)
    return story


@given(steps, words, words)
def test_undo_and_switch_lose_nothing(steps, action, text):
    story = grow(steps)
    longer = story.add(action, text)
    assert longer.undo().path == story.path and longer.undo().turns == longer.turns
    number = longer.branches.index(longer.current) + 1
    assert longer.undo().switch(number) == longer
    assert longer.text().startswith(story.text().rstrip())


@given(steps)
def test_every_turn_is_on_a_branch_and_the_text_has_the_turns_of_the_path(steps):
    story = grow(steps)
    reached = {turn for number in range(len(story.branches)) for turn in story.switch(number + 1).path if story.turns}
    assert reached == set(range(1, len(story.turns) + 1)) or not story.turns
    assert story.text().count("\n\n> ") == sum(bool(turn.action) for turn in story.told)
    for count in range(len(story.path) + 1):
        assert story.back_to(count).path == story.path[:count]


@given(steps=steps)
def test_a_saved_story_is_read_again(steps, tmp_path_factory):
    path, story = tmp_path_factory.mktemp("saved") / "a.json", grow(steps)
    write_story(story, path)
    assert read_story(path) == story
    write_story(story, path.with_suffix(".txt"))
    assert path.with_suffix(".txt").read_text() == story.text().rstrip() + "\n"


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("open the door", "You open the door."),
        ("Open the door!", "You open the door!"),
        ("> You open the door", "You open the door."),
        ("you run", "You run."),
        ("I run", "You run."),
        ("youth is gone", "You youth is gone."),
        ('"Hello"', 'You say "Hello"'),
        ("  ", ""),
        (">", ""),
    ],
)
def test_a_line_becomes_an_action(line, action):
    assert as_action(line) == action


BAD = {
    "a chat": ('{"messages": []}', "no story of format 1"),
    "no opening": ('{"story": 1, "opening": "", "turns": [], "current": 0}', "no opening or no turns"),
    "no turns": ('{"story": 1, "opening": "a", "current": 0}', "no opening or no turns"),
    "current": ('{"story": 1, "opening": "a", "turns": [], "current": 1}', "'current' is '1', expected .* from 0 to 0"),
    "true": ('{"story": 1, "opening": "a", "turns": [], "current": true}', "'current' is 'True'"),
    "cycle": (
        '{"story": 1, "opening": "a", "turns": [{"parent": 1, "action": "a", "text": "b"}], "current": 1}',
        r"turn 1 is .*expected parent \(an earlier turn\), action and text",
    ),
    "no text": ('{"story": 1, "opening": "a", "turns": [{"parent": 0, "action": "a"}], "current": 1}', "turn 1 is"),
    "a number": ('{"story": 1, "opening": "a", "turns": [7], "current": 1}', "turn 1 is '7'"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named(name, tmp_path):
    content, message = BAD[name]
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=f"a.json: {message}"):
        read_story(tmp_path / "a.json")


@pytest.fixture
def telling(engine, output):
    return StoryTelling(Writer(engine, WritingOptions(max_new_tokens=50), STOPS), output, "Once.", "text")


def test_a_turn_is_continued_until_the_model_writes_one_of_the_player(telling, engine, output):
    engine.answers = ["\nIt opens.\n\n> You go in.", "Dark. > You see"]
    telling.handle("open the door")
    assert engine.prompts == ["Once.\n\n> You open the door.\n\n"]
    assert "".join(output.texts).strip() == "It opens." and not output.texts[0].startswith("\n")
    telling.handle("go in")
    assert telling.story.told == [Turn(0, "You open the door.", "\nIt opens."), Turn(1, "You go in.", "Dark.")]
    assert telling.story.text() == "Once.\n\n> You open the door.\n\nIt opens.\n\n> You go in.\n\nDark."


def test_an_empty_line_lets_the_story_go_on_where_it_ended(telling, engine):
    engine.answers = ["x" * 60, " and more"]
    telling.handle("look")
    telling.handle("")
    assert engine.prompts[1] == f"Once.\n\n> You look.\n\n{'x' * 50}"
    assert telling.story.text().endswith("x and more")


def test_the_other_continuations_are_branches(telling, engine, output):
    engine.answers = ["First.", "Second.", "Third.", "Fourth."]
    telling.handle("look")
    telling.handle("/retry")
    telling.handle("wait")
    assert telling.story.text() == "Once.\n\n> You look.\n\nSecond.\n\n> You wait.\n\nThird."
    telling.handle("/branches")
    assert output.notes[-2:] == ["   1  1 turn  > You look. First.", "*  2  2 turns  > You wait. Third."]
    telling.handle("/switch 1")
    assert telling.story.text() == "Once.\n\n> You look.\n\nFirst."
    telling.handle("/branch 0")
    telling.handle("sleep")
    assert telling.story.branches == [1, 3, 4] and engine.prompts[-1] == "Once.\n\n> You sleep.\n\n"
    telling.handle("/switch 2")
    telling.handle("/branch")
    assert telling.story.text() == "Once.\n\n> You look.\n\nSecond."


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/undo", "nothing to undo: the story is at its opening"),
        ("/retry", "nothing to tell again: the story is at its opening"),
        ("/switch 2", "a branch must be from 1 to 1, but is 2; /branches lists them"),
        ("/switch", "a number is needed, such as /switch 2, but it is ''"),
        ("/branch x", "a number is needed, such as /branch 3, but it is 'x'"),
        ("/branch 3", r"a turn must be from 0 \(the opening\) to 0, but is 3"),
        ("/brunch", "no command '/brunch'; did you mean '/branch'?"),
    ],
)
def test_a_mistake_is_named(telling, line, message):
    with pytest.raises(UsageError, match=message):
        telling.handle(line)


def test_a_turn_without_a_text_is_told_again(telling, engine, output):
    engine.answers = ["", "There."]
    telling.handle("look")
    assert telling.story.turns == () and output.notes[-1].startswith("(the model has written nothing")
    telling.handle("/retry")
    assert telling.story.told == [Turn(0, "You look.", "There.")]


def test_what_the_model_no_longer_sees_is_shown(make_engine, output):
    engine = make_engine(90)
    telling = StoryTelling(Writer(engine, WritingOptions(max_new_tokens=20), STOPS), output, "Once.", "text")
    for number in range(6):
        telling.handle(f"walk {number}")
    dropped = output.records[-1]["context"]["dropped_turns"]
    assert dropped > 0 and engine.prompts[-1].startswith("Once.\n\n> You walk ") and "walk 0" not in engine.prompts[-1]
    assert f"the model sees the opening and turns {dropped + 1} to 6 of 6" in telling.status
    assert "(context full: the model no longer sees turn 1 of 3)" in output.notes
    telling.handle("/context")
    assert "---- the model does not see this part ----" in output.notes
    marker = output.notes.index("---- the model sees the opening and what follows ----")
    hidden, seen = output.notes[marker - 1], output.notes[marker + 1]
    assert int(hidden.split()[0]) + 1 == int(seen.split()[0]) and "walk" in hidden and "walk" in seen
    with pytest.raises(UsageError, match="must have fewer tokens than the context of 90, but have 116; shorten them"):
        telling.handle("x" * 100)


def test_the_context_is_that_of_the_turn_to_which_the_player_went_back(make_engine, output):
    engine = make_engine(90)
    telling = StoryTelling(Writer(engine, WritingOptions(max_new_tokens=20), STOPS), output, "Once.", "text")
    for number in range(6):
        telling.handle(f"walk {number}")
    telling.handle("/branch 1")
    assert telling.status.startswith("turn 1; context: ") and "the model sees" not in telling.status
    before = len(output.notes)
    telling.handle("/context")
    assert not any("the model sees" in note or "does not see" in note for note in output.notes[before:])


@pytest.mark.parametrize("line", ["/undo", "/branch 1", "/switch 1", "/load {path}"])
def test_retry_after_going_elsewhere_tells_the_last_turn_there(telling, engine, tmp_path, line):
    engine.answers = ["A door.", "A hall.", "", "A gate."]
    for action in ("look", "walk"):
        telling.handle(action)
    telling.handle(f"/save {tmp_path / 'a.json'}")
    telling.handle("sing")  # the model writes nothing
    telling.handle(line.format(path=tmp_path / "a.json"))
    last = telling.story.told[-1].action
    telling.handle("/retry")
    assert telling.story.told[-1] == Turn(telling.story.told[-1].parent, last, "A gate.") and last != "You sing."


def test_a_model_with_a_template_gets_messages(engine, output):
    telling = StoryTelling(Writer(engine, WritingOptions(max_new_tokens=50), STOPS), output, "Once.")
    engine.answers = [" It opens.", "More."]
    telling.handle("open the door")
    telling.handle("")
    assert engine.prompts[0] == f"[u]{REQUEST}[a]Once.[u]> You open the door.[a]"
    assert engine.prompts[1] == f"{engine.prompts[0]}It opens.[u]{GO_ON}[a]"
    assert telling.story.text() == "Once.\n\n> You open the door.\n\nIt opens.\n\nMore."


def test_the_form_of_the_prompt_is_chosen_by_the_template(make_engine):
    assert Prompt.of(make_engine(), "auto").as_messages
    assert not Prompt.of(make_engine(template=False), "auto").as_messages
    assert not Prompt.of(make_engine(), "text").as_messages
    with pytest.raises(UsageError, match="needs a model with a chat template"):
        Prompt.of(make_engine(template=False), "messages")


def test_save_load_and_text(telling, engine, output, tmp_path):
    telling.handle("look")
    telling.handle("/retry")
    telling.handle(f"/save {tmp_path / 'a.json'}")
    telling.handle(f"/save {tmp_path / 'a.txt'}")
    assert len(json.loads((tmp_path / "a.json").read_text())["turns"]) == 2
    assert (tmp_path / "a.txt").read_text() == "Once.\n\n> You look.\n\nYes.\n"
    other = StoryTelling(Writer(engine, WritingOptions(), STOPS), output, form="text")
    other.handle(f"/load {tmp_path / 'a.json'}")
    assert other.story == telling.story and output.texts[-1] == telling.story.text()
