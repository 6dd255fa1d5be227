"""The command `demo`: its list, its messages, and any demo through the ordinary path."""

import base64
import re
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner
from PIL import Image

from saccade import api, demo
from saccade.cli import demo as command
from saccade.cli import main
from saccade.demo._demo import Demo, DemoFiles, DemoTask
from tests.tasks.battery import Trial

IMAGES = "tests.examples.toy_images"


def call(*arguments):
    return CliRunner().invoke(main, ["demo", *map(str, arguments)])


@pytest.mark.parametrize("name", demo.demo_names())
def test_every_demo_describes_itself(name):
    described = demo.load_demo(name)
    assert described.summary
    for task in described.tasks.values():
        assert 0 < task.minutes <= 3 and not task.goal.endswith(".")


def test_the_list_has_every_demo_and_task():
    result = call("--list")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert [line for line in lines if not line.startswith(" ")] == [
        "cartpole: balance a pole on a cart, from episodes of a scripted expert",
        "communities: a graph of people in groups, with noisy features",
        "dates: dates in some 40 languages",
        "digits: pictures of digits in several fonts",
        "maze: a walker in rooms with doors and objects; an arm and a target",
        "morse: Morse code as sound",
        "shapes: rendered scenes of coloured shapes",
        "text-lines: pictures of words, numbers, prices, dates and times",
    ]
    tasks = [line.split()[0] for line in lines if line.startswith(" ")]
    shapes = ["image_classification", "captioning", "visual_question_answering", "image_text"]
    assert tasks == [
        *("behaviour_cloning", "adversarial_imitation", "node_classification", "translation", "image_generation"),
        *("instruction_following", "image_policy", "speech_recognition", *shapes, "reading"),
    ]
    assert "  captioning                     3 min  describe two objects and how they are arranged" in lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shape"], "saccade: no demo 'shape'; did you mean 'shapes'?"),
        (["text_lines"], "saccade: no demo 'text_lines'; did you mean 'text-lines'?"),
        (
            ["shapes", "--task", "captions"],
            "saccade: this demo has no task 'captions'; did you mean 'captioning'?",
        ),
    ],
)
def test_a_name_that_does_not_exist_is_a_usage_error(arguments, message, tmp_path):
    result = call(*arguments, "--runs", tmp_path)
    assert (result.exit_code, result.stderr.strip()) == (2, message)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def pictures(monkeypatch):
    """A demo of pictures, on the example of a custom task."""
    trial = Trial.of(IMAGES)

    def write(folder):
        folder.mkdir(parents=True)
        paths = [folder / "one.png", folder / "another one.png"]
        for path, column in zip(paths, (1, 8), strict=True):
            picture = Image.new("L", (12, 12))
            picture.paste(255, (column, 4, column + 3, 7))
            picture.save(path)
        return DemoFiles(trial.write_data(folder), "two halves", tuple({"image": path} for path in paths))

    settings = dict(entry.split("=") for entry in trial.settings)
    task = DemoTask("tell left from right", write, "attention to the cells of", 1, settings=settings)
    monkeypatch.setattr(demo, "load_demo", lambda name: Demo("squares", {IMAGES: task}))


def test_a_demo_of_pictures_trains_and_shows_predictions_and_attention(pictures, tmp_path, monkeypatch):
    @contextmanager
    def no_studio(root):
        yield ""

    monkeypatch.setattr(command, "run_studio", no_studio)
    monkeypatch.setattr(api, "load", partial(api.load, task=IMAGES))  # the code of this task may run
    monkeypatch.chdir(tmp_path)
    result = call("squares", "--steps", 60)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("The demo learns to tell left from right.\ntwo halves\n")
    assert "left  runs/squares/one.png\nright  runs/squares/another one.png\n" in result.stdout
    assert "attention to the cells of 'runs/squares/one.png':" in result.stderr
    assert "Now try: saccade look runs/squares-1 'runs/squares/another one.png' --out attention.html" in result.stderr
    assert any(shade in result.stdout for shade in "░▒▓█")  # the map
    assert Path("runs/squares-1/card.md").is_file()


def test_an_address_holds_texts_and_files(tmp_path):
    picture = tmp_path / "one.png"
    picture.write_bytes(b"pixels")
    world = tmp_path / "world.json"
    world.write_text('{"map": ["."]}\n')
    inputs = {"image": picture, "question": "what colour & shape?", "map": world}
    page = command._look_page("http://127.0.0.1:8700/?key=abc", "shapes-1", inputs)
    parts = urlsplit(page)
    assert (parts.path, parts.netloc) == ("/look", "127.0.0.1:8700")
    assert parse_qs(parts.query) == {
        "model": ["shapes-1"],
        "image": ["data:image/png;base64," + base64.b64encode(b"pixels").decode()],
        "question": ["what colour & shape?"],
        "map": ['{"map": ["."]}'],
        "key": ["abc"],
    }


def test_a_demo_with_an_environment_ends_on_the_page_that_replays_an_episode(tmp_path, monkeypatch):
    pytest.importorskip("gymnasium", reason="the cart and the pole are an environment of gymnasium")
    from saccade.demo import cartpole

    @contextmanager
    def a_studio(root):
        yield "http://127.0.0.1:8700/?key=abc"

    trained = cartpole.DEMO.task("behaviour_cloning")
    assert trained.replay and cartpole.DEMO.task("adversarial_imitation").replay
    pages = []
    settings = dict(entry.split("=") for entry in Trial.of("behaviour_cloning").settings)
    small = replace(trained, write=partial(cartpole.write_cartpole, episodes=5), settings=settings)
    monkeypatch.setattr(demo, "load_demo", lambda name: Demo("a pole", {"behaviour_cloning": small}))
    monkeypatch.setattr(command, "run_studio", a_studio)
    monkeypatch.setattr(command, "open_page", lambda page, shown: pages.append(page))
    monkeypatch.chdir(tmp_path)
    result = call("cartpole", "--steps", 2)
    assert result.exit_code == 0, result.stderr
    assert pages == ["http://127.0.0.1:8700/replay?model=cartpole-1&key=abc"]


def test_a_demo_of_generated_images_shows_samples_and_the_scores_before_and_after(tmp_path, monkeypatch):
    from saccade.demo import digits

    @contextmanager
    def no_studio(root):
        yield ""

    trial = Trial.of("image_generation")
    settings = dict(entry.split("=") for entry in trial.settings)
    write = partial(digits.write_digits, train_rows=60, valid_rows=30)
    task = DemoTask("draw digits", write, "attention of the cells", 1, samples=4, settings=settings)
    monkeypatch.setattr(demo, "load_demo", lambda name: Demo("digits", {"image_generation": task}))
    monkeypatch.setattr(command, "run_studio", no_studio)
    monkeypatch.chdir(tmp_path)
    result = call("digits", "--steps", 3)
    assert result.exit_code == 0, result.stderr
    numbers = r"([0-9.]+) before training, ([0-9.]+) after, ([0-9.]+) between two halves of them"
    untrained, after, floor = map(float, re.search(numbers, result.stderr).groups())
    values = dict(re.findall(r"^(frechet_distance|floor|untrained) +([0-9.,]+)", result.stdout, re.MULTILINE))
    shown = [float(values[name].replace(",", "")) for name in ("untrained", "frechet_distance", "floor")]
    assert [untrained, after, floor] == pytest.approx(shown, abs=0.051)
    assert "attention of the cells:" in result.stderr
    assert "Now try: saccade predict runs/digits-1 -o samples=36 -o label=7 --out sevens.png" in result.stderr
    pictures = [
        line for line in result.stdout.splitlines() if any(shade in line for shade in "\u2591\u2592\u2593\u2588")
    ]
    assert len(pictures) > 7, "samples and the map"
