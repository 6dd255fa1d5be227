"""`saccade look` over an image: what it prints in a terminal, with and without colour, and the files it writes."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from PIL import Image

from saccade import api
from saccade.cli import main
from tests.studio import toy_captions

TASK = "tests.studio.toy_captions"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run of the toy captioner and a photo with a bright spot at the top right."""
    folder = tmp_path_factory.mktemp("captions")
    loop = ["train.device=cpu", "train.steps=2", "train.evaluate_every=2"]
    data = toy_captions.write_data(folder)
    api.train(data, task=TASK, name="captions", root=folder / "runs", overrides=loop, progress=False)
    photo = Image.new("RGB", (60, 40), (10, 20, 60))
    photo.paste((255, 255, 255), (50, 0, 60, 10))
    photo.save(folder / "photo.png")
    return folder


def look(place, *arguments):
    inputs = ["look", "captions", place / "photo.png", *arguments, "--runs", place / "runs", "--task", TASK]
    return CliRunner().invoke(main, [str(argument) for argument in inputs])


def test_a_caption_has_a_panel_for_each_word(place):
    result = look(place)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0 and lines[0] == "a bright square on the right"
    labels = [word for line in lines[1:] if not re.search("[░▒▓█]", line) for word in line.split()]
    assert labels == ["image", "a", "bright", "square", "on", "the", "right"]
    assert "0-0" not in result.stdout, "cells are not words of a source"


def test_the_shown_layer_and_the_others_are_named(place):
    others = "encoder.0.self, encoder.1.self"
    assert f"attention shown: decoder.0.cross; others, by --layer: {others}\n" in look(place).stderr
    chosen = look(place, "--layer", "encoder.0.self").stderr
    assert "attention shown: encoder.0.self; others, by --layer: encoder.1.self, decoder.0.cross\n" in chosen
    assert "attention shown" not in look(place, "--json").stderr


def test_a_question_is_printed_with_its_answer_and_its_words_over_the_image(place):
    result = look(place, "question=which side is it?", "--layer", "decoder.0.cross")
    assert result.stdout.splitlines()[:2] == ["question: which side is it?", "right"]
    assert all(f"{word} " in result.stdout for word in ("which", "side", "is"))


@pytest.mark.parametrize("name", ["film.gif", "words.png", "words.svg", "words.html", "words.json"])
def test_files_are_written_by_their_suffix(place, tmp_path, name):
    result = look(place, "--out", tmp_path / name)
    assert result.exit_code == 0 and f"wrote {tmp_path / name}" in result.stderr
    content = (tmp_path / name).read_bytes()
    starts = {"gif": b"GIF89a", "png": b"\x89PNG", "svg": b"<svg", "html": b"<!doctype", "json": b"{"}
    assert content.startswith(starts[name.partition(".")[2]])
    if name == "film.gif":
        with Image.open(tmp_path / name) as film:
            assert film.n_frames == 6
    if name == "words.json":
        gaze = json.loads(content)["gaze"]
        assert [entry["word"] for entry in gaze] == ["a", "bright", "square", "on", "the", "right"]
        assert gaze[2]["x"] > 0.8 and gaze[2]["y"] < 0.25, "the square is at the top right"


def test_a_cell_rollout_and_a_style_are_chosen(place):
    first = look(place, "--at", "0,5", "--blocks").stdout
    assert "0,5" in first and "class 0." in first
    assert look(place, "--at", "2,2", "--blocks").stdout != first
    assert "mean of 24 cells" in look(place, "--layer", "rollout").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at", "5"], "--at must be ROW,COLUMN, such as 3,5, but is '5'"),
        (["--at", "4,0"], "at must be 0,0 to 3,5 in 'encoder.1.self', but is 4,0"),
        (["--at", "0,0", "--layer", "decoder.0.cross"], "at must name a cell of an image, but the queries of"),
        (["--opacity", "2"], "opacity must be 0 to 1, but is 2"),
        (["--layer", "rolout"], "no attention 'rolout'; did you mean 'rollout'?"),
        (["--layer", "rollout", "--out", "film.gif"], "a film must have words as queries, but those of 'rollout' are"),
    ],
)
def test_mistakes_get_one_line(place, arguments, message):
    result = look(place, *arguments)
    assert result.exit_code == 2 and result.stderr.startswith(f"saccade: {message}")
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_shows_the_picture_in_half_blocks_unless_colours_are_off(place, colour):
    terminal, side = pty.openpty()
    command = ["look", "captions", str(place / "photo.png"), "--runs", str(place / "runs"), "--task", TASK]
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    environment |= {"COLUMNS": "90", "OMP_NUM_THREADS": "1", "TERM": "xterm", **({} if colour else {"NO_COLOR": "1"})}
    arguments = [sys.executable, "-m", "saccade", *command]
    with subprocess.Popen(arguments, stdin=side, stdout=side, stderr=side, env=environment) as process:
        os.close(side)
        parts = []
        while True:
            try:
                parts.append(os.read(terminal, 1 << 16))
            except OSError:  # the other side has closed the terminal
                break
        assert process.wait(60) == 0
    os.close(terminal)
    text = b"".join(parts).decode()
    assert ("\x1b[38;2;" in text and "▀" in text) == colour
    assert ("█" in text) == (not colour)
    lines = ESCAPE.sub("", text).splitlines()
    assert max(map(len, lines)) <= 90 and lines[0] == "a bright square on the right"
