"""Continuations over HTTP: their lines, seeds, steering, stopping, branches, distributions and rows."""

import base64
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from saccade import api
from saccade.decode.engine import Engine
from saccade.studio import generation
from saccade.studio.continuations import Continuation
from tests.studio.conftest import MINE

PROMPT = {"model": "prose", "inputs": {"prompt": "the cat"}}


def lines(client, **body):
    answer = client.post("/api/generate", json={**PROMPT, "options": {"max_new_tokens": 12}, **body}, headers=MINE)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def post(client, id, part="", **body):
    return client.post(f"/api/generations/{id}{part}", json=body, headers=MINE)


def generate(client, **body):
    """Return the id, the description, the tokens and the end of a generation."""
    first, *rest = lines(client, **body)
    (described,) = [line for line in rest if "prompt" in line]
    tokens = [line for line in rest if "step" in line]
    text = "".join(line["text"] for line in rest if "text" in line)
    return SimpleNamespace(id=first["id"], described=described, tokens=tokens, end=rest[-1], text=text)


def weights(text):
    return np.frombuffer(base64.b64decode(text), "<u2") / 65535


def test_a_seed_and_settings_give_the_text_of_the_model(client, place):
    one, again = (generate(client, options={"max_new_tokens": 12, "seed": 5}) for _ in range(2))
    assert one.tokens == again.tokens and one.text == again.text
    assert one.end == {"end": "length", "tokens": 12} and one.described["settings"]["seed"] == 5
    model = api.load("prose", root=place / "runs")
    assert one.text == model("the cat", max_new_tokens=12, seed=5).text
    assert one.text != generate(client, options={"max_new_tokens": 12, "seed": 6}).text


def test_a_token_comes_with_the_probabilities_it_was_chosen_from(client, place):
    options = {"max_new_tokens": 4, "temperature": 0.7, "top_k": 3}
    result = generate(client, options=options)
    for step, line in enumerate(result.tokens):
        assert line["step"] == step and line["settings"] == {"temperature": 0.7, "top_k": 3, "top_p": 1.0}
        shaped, model = ([entry[at] for entry in line["candidates"]] for at in (2, 3))
        assert line["kept"] == 3 == sum(value > 0 for value in shaped)
        assert sum(shaped) == pytest.approx(1, abs=1e-5) and 0 < sum(model) <= 1 + 1e-5
        assert model[:12] == sorted(model[:12], reverse=True)
        assert shaped[0] / shaped[1] == pytest.approx((model[0] / model[1]) ** (1 / 0.7), rel=1e-3)
        assert next(entry for entry in line["candidates"] if entry[0] == line["id"])[2] > 0
    scores = api.load("prose", root=place / "runs")("the cat", max_new_tokens=0).scores
    first = [entry[3] for entry in result.tokens[0]["candidates"]][:10]
    assert first == pytest.approx(list(scores.values()), abs=1e-5)


def test_other_settings_shape_the_distribution_of_a_step_at_once(client):
    result = generate(client)
    line = result.tokens[3]
    answer = post(client, result.id, "/distribution", step=3, options={"temperature": 0}).json()
    assert answer["kept"] == 1 and answer["candidates"][0][2] == 1
    assert [entry[3] for entry in answer["candidates"]][:12] == [entry[3] for entry in line["candidates"]][:12]
    flat = post(client, result.id, "/distribution", step=3, options={"temperature": 2, "top_p": 0.5}).json()
    assert 0 < flat["kept"] < flat["vocabulary"]
    same = post(client, result.id, "/distribution", step=3, options={}).json()
    assert same["candidates"] == line["candidates"]
    refused = post(client, result.id, "/distribution", step=3, options={"temperature": -1})
    assert (refused.status_code, refused.json()["error"]) == (400, "temperature must be 0 or more, but is -1.0")


def test_a_branch_takes_tokens_over_and_goes_on_after_the_chosen_one(client):
    parent = generate(client)
    line = parent.tokens[4]
    other = next(entry for entry in line["candidates"] if entry[0] != line["id"])
    branch = generate(client, parent=parent.id, keep=4, token=other[0])
    assert [token["id"] for token in branch.tokens[:5]] == [*(token["id"] for token in parent.tokens[:4]), other[0]]
    assert [token.get("given", False) for token in branch.tokens[:6]] == [False] * 4 + [True, False]
    assert branch.tokens[4]["candidates"] == line["candidates"] and branch.tokens[4]["token"] == other[1]
    assert len(branch.tokens) == 12 and branch.end["tokens"] == 12
    assert generate(client, parent=parent.id, keep=4, token=other[0]).text == branch.text
    assert "".join(token["text"] for token in branch.tokens[:4]) == "".join(t["text"] for t in parent.tokens[:4])
    again = generate(client, parent=branch.id, keep=8, options={"max_new_tokens": 10, "seed": 9})
    assert [token["id"] for token in again.tokens[:8]] == [token["id"] for token in branch.tokens[:8]]
    assert again.tokens[4]["given"] and len(again.tokens) == 10


def test_a_continued_text_is_that_without_the_pause(client):
    whole = generate(client, options={"max_new_tokens": 20, "seed": 3})
    half = generate(client, options={"max_new_tokens": 8, "seed": 3})
    joined = generate(client, parent=half.id, keep=8, options={"max_new_tokens": 20, "seed": 3})
    assert joined.text == whole.text
    assert [token["id"] for token in joined.tokens] == [token["id"] for token in whole.tokens]


def test_rows_that_come_with_tokens_are_those_of_the_finished_map(client, place):
    result = generate(client, map="decoder.1.self", head=1)
    described = result.described
    assert [entry["name"] for entry in described["maps"]] == ["decoder.0.self", "decoder.1.self"]
    assert described["maps"][1] == {"name": "decoder.1.self", "title": "Layer 1 · self-attention", "heads": 2}
    count = len(described["prompt"]) + 11  # the last token is not read
    answer = post(client, result.id, "/rows", map="decoder.1.self", head=1, first=0, last=count).json()
    cells = weights(answer["cells"]).reshape(-1, answer["columns"])
    assert cells.shape == (count, count) and cells.sum(1) == pytest.approx(1, abs=2e-3)
    assert np.triu(cells, 1).max() == 0, "a token sees none after it"
    for line in result.tokens:
        row = weights(line["row"])
        assert len(row) == described["first"] + line["step"] + 1
        assert row == pytest.approx(cells[described["first"] + line["step"], : len(row)], abs=2e-5)
    text = "the cat" + "".join(line["text"] for line in result.tokens[:-1])
    read = api.load("prose", root=place / "runs")(text, max_new_tokens=0).attention["decoder.1.self"]
    if read.shape[1] == count:  # the text has the same tokens when it is read as one
        assert cells == pytest.approx(read.rows(0, count, head=1)[0].numpy(), abs=1e-3)
    mean = post(client, result.id, "/rows", map="decoder.0.self", first=0, last=4).json()
    assert weights(mean["cells"]).reshape(4, -1).sum(1) == pytest.approx(1, abs=2e-3)


def test_a_translation_is_watched_too(client):
    result = generate(
        client, model="pairs", inputs={"source": "the cat sat"}, options={"beam": 1}, map="decoder.0.cross"
    )
    assert not result.described["self"] and result.described["first"] == 0
    for line in result.tokens:
        assert len(weights(line["row"])) == len(result.described["prompt"])
        assert line["candidates"][0][0] == line["id"], "greedy search takes the most probable"
        assert line["settings"] == {}
    other = result.tokens[1]["candidates"][1][0]
    branch = generate(
        client,
        model="pairs",
        inputs={"source": "the cat sat"},
        options={"beam": 1},
        parent=result.id,
        keep=1,
        token=other,
    )
    assert [token["id"] for token in branch.tokens[:2]] == [result.tokens[0]["id"], other]


@pytest.fixture
def slow_steps(monkeypatch):
    """Count the steps of the engine, each of which takes a while."""
    steps, step = [], Engine.step

    def slow(engine):
        steps.append(time.monotonic())
        time.sleep(0.05)
        return step(engine)

    monkeypatch.setattr(Engine, "step", slow)
    return steps


class Watched:
    """A generation whose lines are read while it runs, in a thread of the test."""

    def __init__(self, app, options):
        studio = app.app.state.studio
        self.continuation = Continuation("prose", studio.sessions.model("prose"), PROMPT["inputs"], options)
        studio.generations.continuations.put(self.continuation.id, self.continuation)
        self.lines, self.id = [], self.continuation.id
        self.thread = threading.Thread(target=self._read, args=(studio.generations.slots,))
        self.thread.start()

    def _read(self, slots):
        for line in self.continuation.lines(slots):
            self.lines.append(line)

    def wait(self, count):
        end = time.monotonic() + 20
        while len(self.tokens) < count:
            assert time.monotonic() < end, self.lines[-3:]
            time.sleep(0.005)

    @property
    def tokens(self):
        return [line for line in [*self.lines] if "step" in line]


def test_stop_ends_within_one_step(app, client, slow_steps):
    watched = Watched(app, {"max_new_tokens": 50})
    watched.wait(5)
    assert post(client, watched.id, stop=True).status_code == 200
    begun = len(slow_steps)
    watched.thread.join(10)
    assert len(slow_steps) <= begun + 1 and watched.lines[-1]["end"] == "stopped"
    assert 5 <= len(watched.tokens) < 12


def test_settings_apply_to_the_tokens_generated_next(app, client, slow_steps):
    watched = Watched(app, {"max_new_tokens": 30, "temperature": 1.5})
    watched.wait(4)
    assert post(client, watched.id, options={"temperature": 0}).status_code == 200
    before = len(watched.tokens)
    watched.thread.join(20)
    temperatures = [line["settings"]["temperature"] for line in watched.tokens]
    assert temperatures[:4] == [1.5] * 4 and set(temperatures[before + 1 :]) == {0.0}
    for line in watched.tokens[before + 1 :]:
        assert line["id"] == line["candidates"][0][0], "greedy from here"


def test_the_map_can_be_chosen_while_tokens_come(app, client, slow_steps):
    watched = Watched(app, {"max_new_tokens": 20})
    watched.wait(3)
    assert "row" not in watched.tokens[0]
    post(client, watched.id, map="decoder.0.self", head=0)
    before = len(watched.tokens)
    answer = post(client, watched.id, "/rows", map="decoder.0.self", head=0, first=0, last=100)
    assert answer.json()["columns"] >= before
    watched.thread.join(20)
    assert all(line["map"] == "decoder.0.self" and line["head"] == 0 for line in watched.tokens[before + 1 :])


def test_the_context_ends_a_continuation_instead_of_dropping_what_is_shown(client):
    result = generate(client, options={"max_new_tokens": 500})
    assert result.end["end"] in ("context", "stop")
    if result.end["end"] == "context":
        assert len(result.described["prompt"]) + len(result.tokens) - 1 == 64


@pytest.mark.parametrize(
    ("part", "body", "message"),
    [
        ("/rows", {"map": "decoder.9.self", "first": 0, "last": 1}, "no attention 'decoder.9.self'"),
        ("/rows", {"map": "decoder.0.self", "head": 7, "first": 0, "last": 1}, "head must be below 2, but is 7"),
        ("/rows", {"map": "decoder.0.self", "first": 99, "last": 9}, "first must be below"),
        ("/rows", {"map": "decoder.0.self", "first": "1", "last": 9}, "first must be a whole number of at least 0"),
        ("/distribution", {"step": 99}, "step must be below 12, but is 99"),
        ("/distribution", {"step": 1, "options": []}, "options must be an object"),
        ("", {"options": {"top_p": 0}}, "top_p must be above 0 and at most 1, but is 0.0"),
    ],
)
def test_a_mistake_gets_one_clear_line(client, part, body, message):
    result = generate(client)
    answer = post(client, result.id, part, **body)
    assert answer.status_code == 400 and answer.json()["error"].startswith(message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"parent": "gone", "keep": 0}, "this continuation is no longer in the memory of the studio"),
        ({"parent": 5, "keep": 0}, "parent must be the id of a continuation"),
        ({"keep": 13}, "keep must be at most 12, but is 13"),
        ({"keep": 2, "token": 10**6}, "token must be from 0 to"),
    ],
)
def test_a_branch_that_cannot_be_is_refused(client, body, message):
    body = {"parent": generate(client).id, **body}
    answer = client.post("/api/generate", json={**PROMPT, **body}, headers=MINE)
    assert answer.status_code == 400 and answer.json()["error"].startswith(message)


def test_the_oldest_distributions_are_dropped_beyond_the_limit(client, monkeypatch):
    monkeypatch.setattr("saccade.studio.continuations.LOGITS", 1)
    result = generate(client)
    answer = post(client, result.id, "/distribution", step=2, options={})
    assert answer.json()["error"].startswith("the distribution of this token is no longer kept")


def test_the_page_lists_models_that_generate(client):
    names = client.get("/generate.json").json()["models"]
    assert {"prose", "pairs"} <= set(names) and not {"rows", "questions"} & set(names)
    assert client.get("/generate").status_code == 200


def test_no_thread_is_left(client):
    generate(client)
    end = time.monotonic() + 5
    while any(thread.name == generation.THREAD for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)
