"""The flow of one token and Step by step as JSON: their numbers agree with each other and with the maps."""

import base64

import numpy as np
import pytest

from tests.studio.conftest import MINE


def asked(client, model, *texts, **options):
    form = client.get(f"/api/models/{model}/form").json()
    inputs = {field["name"]: text for field, text in zip(form["inputs"], texts, strict=False)}
    answer = client.post("/api/look", json={"model": model, "inputs": inputs, "options": options}, headers=MINE)
    assert answer.status_code == 200, answer.text
    return answer.json()


def matrix(packed):
    return np.frombuffer(base64.b64decode(packed["data"]), "<f4").reshape(packed["shape"])


@pytest.mark.parametrize("page", ["flow", "steps"])
def test_the_pages_and_their_twins(client, page):
    assert "Flow of one token" in client.get("/flow").text
    data = client.get(f"/{page}.json?model=rows&position=2").json()
    assert "rows" in data["models"] and data["parameters"] == {"model": "rows", "position": "2"}


@pytest.mark.parametrize(
    ("model", "texts", "stacks"),
    [
        ("prose", ["the cat sat"], ["decoder"]),
        ("pairs", ["the red cat"], ["encoder", "decoder"]),
        ("rows", ["the red cat"], ["bert.encoder"]),
        ("questions", ["the what?", "the blue cat sat."], ["bert.encoder"]),
    ],
)
def test_every_stack_is_followed_stage_by_stage(client, model, texts, stacks):
    look = asked(client, model, *texts)
    path = f"/api/look/{look['id']}/flow"
    flow = client.get(path).json()
    assert [stack["name"] for stack in flow["stacks"]] == stacks and flow["stack"] == stacks[0]
    for stack in flow["stacks"]:
        flow = client.get(path, params={"map": stack["name"], "position": 1}).json()
        assert flow["label"] == stack["tokens"][1] and flow["error"] < 1e-5
        norm = flow["embedding"]["x"]
        for stage in flow["stages"]:
            assert stage["x"] == pytest.approx(norm, rel=1e-5)
            norm = stage["result"]
            assert (stage["attended"] is None) == (stage["kind"] == "feed")
            answer = client.get(path, params={"map": stack["name"], "position": 1, "stage": stage["name"]}).json()
            vectors = {vector["name"]: np.array(vector["values"]) for vector in answer["vectors"]}
            assert np.linalg.norm(vectors["x + update"]) == pytest.approx(stage["total"], rel=1e-4)
            added = vectors.get("update", vectors["output"])
            assert np.allclose(vectors["x"] + added, vectors["x + update"], atol=1e-4)
        kinds = {"self", "cross", "feed"} if stack["name"] == "decoder" and model == "pairs" else {"self", "feed"}
        assert {stage["kind"] for stage in flow["stages"]} == kinds
        assert flow["output"]["x"] == pytest.approx(norm, rel=1e-5)
        layers = {stage["layer"] for stage in flow["stages"]}
        assert flow["lens"] is None or {entry["layer"] for entry in flow["lens"]} == {"embedding", *layers}
        assert (flow["lens"] is not None) == (stack["name"] == "decoder")


def test_titles_name_the_layer_and_the_kind(client):
    look = asked(client, "rows", "the red cat")
    flow = client.get(f"/api/look/{look['id']}/flow").json()
    assert [stage["title"] for stage in flow["stages"][:2]] == ["Layer 0 · self-attention", "Layer 0 · feed-forward"]
    assert flow["label"] == "the", "the first word"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"map": "nowhere"}, "no residual stream 'nowhere'"),
        ({"position": 99}, "position must be 0 to 4 in 'bert.encoder', but is 99"),
        ({"position": "x"}, "position must be a whole number"),
        ({"stage": "nothing"}, "no stage 'nothing'"),
    ],
)
def test_what_does_not_exist_is_named(client, parameters, message):
    look = asked(client, "rows", "the red cat")
    answer = client.get(f"/api/look/{look['id']}/flow", params=parameters)
    assert answer.status_code == 400 and message in answer.json()["error"]


@pytest.mark.parametrize(
    ("model", "texts", "name", "query"),
    [
        ("prose", ["the cat"], "decoder.1.self", 4),
        ("pairs", ["the red cat"], "decoder.0.cross", 1),
        ("rows", ["the red cat"], "bert.encoder.1.self", 2),
    ],
)
def test_the_matrices_of_a_head_give_its_vectors(client, model, texts, name, query):
    look = asked(client, model, *texts)
    how = {"map": name, "head": 1, "query": query}
    values = client.get(f"/api/look/{look['id']}/calculation", params=how).json()
    x, inputs = np.array(values["x"]), matrix(values["inputs"])
    bias = 0 if values["b_q"] is None else np.array(values["b_q"])
    assert np.allclose(matrix(values["w_q"]) @ x + bias, values["projected"], atol=1e-4)
    bias = 0 if values["b_v"] is None else np.array(values["b_v"])
    assert np.allclose(inputs @ matrix(values["w_v"]).T + bias, values["v"], atol=1e-4)
    assert np.allclose(np.concatenate(values["heads"]), values["concatenated"])
    bias = 0 if values["b_o"] is None else np.array(values["b_o"])
    output = matrix(values["w_o"]) @ np.array(values["concatenated"]) + bias
    assert np.allclose(output, values["output"], atol=1e-4)
    residual = values["residual"]
    assert np.allclose(residual["output"], output, atol=1e-4)
    assert np.allclose(np.array(residual["x"]) + residual["update"], residual["result"], atol=1e-4)
    assert values["own"] == (None if "cross" in name else query)
    count = len(values["labels"])
    assert matrix(values["projected_k"]).shape == (count, len(values["q"])) and len(values["k"]) == count
