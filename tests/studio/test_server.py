"""The server of the studio: who is let in, what it answers, and that the numbers are those of the model."""

import base64
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from saccade import api
from saccade.errors import UsageError
from saccade.studio.app import make_app
from saccade.studio.sessions import Sessions
from tests.pretrained import test_pix2tex
from tests.studio.conftest import CAPTIONS, HOME, IMAGES, MINE

FIELDS = {"prose": "prompt", "pairs": "source", "rows": "text"}


def asked(client, model, text, field="", **options):
    field = field or FIELDS.get(model) or client.get(f"/api/models/{model}/form").json()["inputs"][0]["name"]
    body = {"model": model, "inputs": {field: text}, "options": options}
    answer = client.post("/api/look", json=body, headers=MINE)
    assert answer.status_code == 200, answer.text
    return answer.json()


def cells(client, look, name, head, rows, columns, **more):
    how = {"map": name, "head": head, "top": 0, "bottom": rows, "left": 0, "right": columns, **more}
    answer = client.get(f"/api/look/{look['id']}/cells", params=how)
    assert answer.status_code == 200, answer.text
    return np.frombuffer(answer.content, "<u2").astype(np.float64) / 65535


def test_without_the_key_nothing_is_shown(app):
    client = TestClient(app, base_url=HOME)
    assert client.get("/runs").status_code == client.get("/static/look.js").status_code == 403
    assert client.get("/runs?key=wrong").status_code == 403
    answer = client.get("/runs?key=secret", follow_redirects=False)
    assert answer.status_code == 303 and answer.headers["location"] == "/runs"
    assert "HttpOnly" in answer.headers["set-cookie"] and "samesite=strict" in answer.headers["set-cookie"].lower()
    assert client.get("/runs").status_code == 200


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"host": "evil.example:8000"}, 403),
        ({"host": "127.0.0.1:9999"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 200),
        ({"host": "localhost:8000"}, 403),  # a cookie of another name is not sent along
    ],
)
def test_other_hosts_and_sites_are_refused(client, headers, code):
    if headers == {"host": "localhost:8000"}:
        client.cookies.clear()
    assert client.get("/runs", headers=headers).status_code == code


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": HOME, "content-type": "text/plain"}, 415),
        ({"sec-fetch-site": "same-origin", "content-type": "application/json"}, 400),
    ],
)
def test_only_own_pages_may_change_things(client, headers, code):
    assert client.post("/api/runs/nothing/stop", content="{}", headers=headers).status_code == code


def test_too_long_a_request_is_refused(client):
    body = b'{"model": "rows", "inputs": {"text": "' + b"a" * (1 << 20) + b'!"}}'
    headers = {**MINE, "content-type": "application/json"}
    assert client.post("/api/look", content=body, headers=headers).status_code == 413
    file = b'{"model": "rows", "inputs": {"text": "data:,' + b"a" * (12 << 20) + b'"}}'
    assert client.post("/api/look", content=file, headers=headers).status_code == 413


def test_every_answer_has_the_rules_of_the_page(client):
    for path in ("/runs", "/runs.json", "/static/look.js", "/nowhere", "/api/nowhere"):
        headers = client.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[", "must be JSON"),
        ("[1]", "must be a JSON object"),
        ('{"model": 3}', "must have a model"),
        ('{"model": "../../etc", "inputs": {}}', "no model '../../etc'"),
        ('{"model": "rows", "inputs": {"text": "cat"}, "options": {"beam": 3}}', "beam"),
        ('{"model": "rows", "inputs": {"txt": "cat"}}', "no input 'txt'; this model takes text"),
        ('{"model": "rows", "inputs": "cat"}', "must have a model, inputs and options"),
        ('{"model": "questions", "inputs": {"question": "what?"}}', "context must be given, but is not"),
    ],
)
def test_bad_requests_get_one_clear_line(client, body, message):
    answer = client.post("/api/look", content=body, headers={**MINE, "content-type": "application/json"})
    assert answer.status_code == 400
    assert message in answer.json()["error"]


@pytest.mark.parametrize(
    "path", ["/watch/%2e%2e%2fetc", "/watch/nothing", "/api/runs/..%2f..%2fetc", "/api/look/nothing"]
)
def test_names_are_never_paths(client, path):
    assert client.get(path).status_code in (400, 404)


@pytest.mark.parametrize("words", [0, 1])
def test_cells_are_the_eager_weights_of_transformers(client, bert_folder, words):
    transformers = pytest.importorskip("transformers")
    look = asked(client, str(bert_folder), "the cat [MASK] on xyz.")
    model = transformers.BertModel.from_pretrained(bert_folder, attn_implementation="eager").eval()
    task = Sessions(bert_folder, [str(bert_folder)]).model(str(bert_folder)).task
    ids = task.encode("the cat [MASK] on xyz.", parse_special=True).ids
    with torch.no_grad():
        wanted = model(torch.tensor([ids]), output_attentions=True).attentions
    for layer, weights in enumerate(wanted):
        for head in range(weights.shape[1]):
            one = weights[0, head].double().numpy()
            if words:
                groups = look["maps"][layer]["queries"]["words"]
                numbers = {word: place for place, word in enumerate(dict.fromkeys(groups))}
                rows = np.array([[float(numbers[word] == place) for word in groups] for place in range(len(numbers))])
                one = rows / rows.sum(1, keepdims=True) @ one @ rows.T
            result = cells(client, look, f"bert.encoder.{layer}.self", head, *one.shape, words=words)
            assert np.abs(result.reshape(one.shape) - one).max() < 1e-5


def test_every_head_has_the_weight_of_its_cell(client):
    look = asked(client, "pairs", "the cat")
    address = f"/api/look/{look['id']}/heads"
    crossing = [one for one in look["maps"] if one["name"].endswith("cross")]
    shown = crossing[0]["name"]
    answer = client.get(address, params={"map": shown, "query": 1, "key": 2, "words": 1}).json()
    assert [layer["title"] for layer in answer["layers"]] == ["Decoder 0 \u00b7 cross-attention"]
    (layer,) = answer["layers"]
    for head, weight in enumerate(layer["weights"]):
        part = cells(client, look, shown, head, 2, 3, words=1).reshape(2, 3)
        assert weight == pytest.approx(part[1, 2], abs=1e-4)
    assert [entry["weight"] for entry in answer["ranked"]] == sorted(layer["weights"], reverse=True)
    alone = client.get(address, params={"map": shown, "query": 1}).json()
    assert alone["key"] is None and alone["layers"][0]["weights"] is None and len(alone["layers"][0]["top"]) == 2
    for parameters, message in (({}, "query must be a whole number"), ({"query": 9999}, "query must be 0 to ")):
        refused = client.get(address, params={"map": shown, **parameters})
        assert refused.status_code == 400 and message in refused.json()["error"]


def test_every_run_and_model_opens(client, gpt2_folder, marian_folder):
    foreign = ((str(gpt2_folder), "abc"), (str(marian_folder), "The cat sat."))
    for model, text in (("prose", "the cat"), ("pairs", "the cat"), ("rows", "the cat"), *foreign):
        look = asked(client, model, text)
        assert look["maps"], model
        small = client.get(f"/api/look/{look['id']}/overview").json()
        assert {one["name"] for one in small} == {one["name"] for one in look["maps"]} - {"alignment", "rollout"}
        name = small[0]["name"]
        assert client.get(f"/api/look/{look['id']}/overview", params={"map": name}).json() == small[:1]
        assert len(client.get(f"/api/look/{look['id']}/statistics", params={"map": name}).json()) == small[0]["heads"]


def test_a_long_text_is_seen_in_steps(client, gpt2_folder):
    look = asked(client, str(gpt2_folder), "abcd" * 100, max_new_tokens=1)
    whole = cells(client, look, "decoder.3.self", 2, 400, 400).reshape(400, 400)
    thin = cells(client, look, "decoder.3.self", 2, 400, 400, down=4, across=8).reshape(100, 50)
    assert np.abs(thin - whole[::4].reshape(100, 50, 8).max(-1)).max() < 1e-9


@pytest.mark.parametrize("words", [0, 1])
def test_all_heads_of_a_small_map_come_at_once(client, words):
    look = asked(client, "rows", "the red cat")
    axis = look["maps"][0]["queries"]
    count = len(axis["merged"] if words else axis["labels"])
    name = look["maps"][0]["name"]
    expected = [cells(client, look, name, head, count, count, words=words) for head in (0, 1, "mean")]
    assert np.array_equal(cells(client, look, name, "all", count, count, words=words), np.concatenate(expected))


def test_all_heads_of_a_large_map_are_refused(client, gpt2_folder):
    look = asked(client, str(gpt2_folder), "abcd" * 300)
    how = {"map": "decoder.0.self", "head": "all", "top": 0, "bottom": 1200, "left": 0, "right": 1200}
    answer = client.get(f"/api/look/{look['id']}/cells", params=how)
    message = "a rectangle of all heads must have at most 4,194,304 weights, but has 7,200,000"
    assert (answer.status_code, answer.json()["error"]) == (400, message)


def test_words_are_merged_by_the_server(client):
    axis = asked(client, "rows", "the redcat")["maps"][0]["queries"]
    assert any(label.startswith("##") for label in axis["labels"])
    assert [word for word in axis["merged"] if word[0] != "["] == ["the", "redcat"]
    assert "merged" not in asked(client, "prose", "the cat")["maps"][0]["queries"], "characters are not merged"


def test_the_progress_of_a_prediction_is_told_by_its_ticket(client):
    body = {"model": "rows", "inputs": {"text": "the red cat"}, "options": {}, "ticket": "mine"}
    assert client.get("/api/progress/mine").json() == {"fraction": 0}
    assert client.post("/api/look", json=body, headers=MINE).status_code == 200
    assert client.get("/api/progress/mine").json() == {"fraction": 1}
    answer = client.post("/api/look", json={**body, "ticket": "x" * 65}, headers=MINE)
    assert (answer.status_code, answer.json()["error"]) == (400, "ticket must be a text of at most 64 characters")


def test_predictions_stay_open_until_their_memory_is_used(place):
    size = Sessions(place / "runs").predict("rows", {"text": "the red cat"}, {}).nbytes
    assert size > 4 * 2 * 2 * 5 * 32, "at least q and k of each layer"
    sessions = Sessions(place / "runs", memory=int(3.5 * size))
    ids = [sessions.predict("rows", {"text": "the red cat"}, {}).id for _ in range(5)]
    for id in ids[:2]:
        with pytest.raises(UsageError, match="this prediction is no longer in memory; predict again"):
            sessions.inspection(id)
    kept = sessions.inspection(ids[2])
    before = kept.nbytes
    assert kept.rollout is kept.attention("rollout") and kept.nbytes > before, "rollout counts when it is computed"
    large = Sessions(place / "runs", memory=1)
    assert large.inspection(large.predict("rows", {"text": "the red cat"}, {}).id), "the last one in any case"


@pytest.mark.parametrize("kind", ["svg", "pdf", "png", "gif", "html", "json"])
def test_the_picture_can_be_taken_along(client, kind):
    look = asked(client, "pairs", "the cat")
    answer = client.get(f"/api/look/{look['id']}/export.{kind}", params={"map": "decoder.0.cross", "head": 1})
    assert answer.status_code == 200 and len(answer.content) > 500
    assert client.get(f"/api/look/{look['id']}/export.exe").status_code == 400


def test_a_figure_has_the_title_and_the_colours_of_the_page(client):
    look = asked(client, "prose", "the cat")
    path, how = f"/api/look/{look['id']}/export.svg", {"map": "decoder.1.self", "head": 1, "words": 0}
    plain = client.get(path, params=how).text
    assert "the cat - Layer 1 · self-attention · head 1</title>" in plain and "square-root colours" not in plain
    assert "square-root colours" in client.get(path, params={**how, "sqrt": 1}).text


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_maps_with_one_head_are_saved_whatever_head_the_address_has(client, kind):
    look = asked(client, "pairs", "the cat")
    assert [entry["name"] for entry in look["maps"]][:1] == ["alignment"]
    for name, text in (("alignment", look), ("rollout", asked(client, "rows", "the red cat"))):
        how = {"map": name, "head": 1}
        answers = [client.get(f"/api/look/{text['id']}/export.{kind}", params=given) for given in (how, {"map": name})]
        assert answers[0].status_code == 200 and answers[0].content == answers[1].content, name


def test_the_steps_of_a_head_end_in_its_weights(client):
    look = asked(client, "prose", "the cat")
    how = {"map": "decoder.1.self", "head": 1, "query": 4}
    result = client.get(f"/api/look/{look['id']}/calculation", params=how).json()
    count = len(look["maps"][1]["queries"]["labels"])
    row = cells(client, look, "decoder.1.self", 1, 5, count).reshape(5, count)[4]
    weights = np.zeros(count)
    weights[result["keys"]] = result["weights"]
    assert np.abs(weights - row).max() < 1e-5
    assert result["allowed"][:6] == [True] * 5 + [False]
    assert np.abs(np.array(result["weights"]) @ np.array(result["v"]) - np.array(result["head_output"])).max() < 1e-5


def test_runs_can_be_followed_stopped_and_resumed_by_name_only(client, place):
    result = client.get("/api/runs/pairs").json()
    assert (
        result["steps"][-1]["step"] == 30
        and result["snapshots"] == [0, 1, 2, 4, 8, 10, 16, 20, 30]
        and not result["running"]
    )
    seen = client.get("/api/runs/pairs/attention/20").json()
    assert seen["step"] == 20 and seen["examples"][0]["maps"]
    assert "has no attention snapshot of step 21" in client.get("/api/runs/pairs/attention/21").json()["error"]
    answer = client.post("/api/runs/pairs/stop", json={}, headers=MINE)
    assert answer.json() == {"error": "run 'pairs' is not being trained"}
    assert client.post("/api/runs/pairs/delete", json={}, headers=MINE).status_code == 400


def same_cells(client, look, wanted):
    """Every head of some maps, as the page gets them, beside weights (heads, queries, keys) from elsewhere."""
    sizes = {
        one["name"]: [len((one[side] or one["queries"])["labels"]) for side in ("queries", "keys")]
        for one in look["maps"]
    }
    for name, weights in wanted.items():
        for head, one in enumerate(weights.double().numpy()):
            assert [*one.shape] == sizes[name], name
            result = cells(client, look, name, head, *one.shape).reshape(one.shape)
            assert np.abs(result - one).max() < 1e-5, (name, head)


def test_what_a_gpt2_looked_at_is_what_transformers_says(client, gpt2_folder):
    transformers = pytest.importorskip("transformers")
    how = {"max_new_tokens": 5, "temperature": 0}
    look = asked(client, str(gpt2_folder), "The cat sat on the mat.", **how)
    trace = api.load(str(gpt2_folder), device="cpu")("The cat sat on the mat.", **how).trace
    model = transformers.GPT2LMHeadModel.from_pretrained(gpt2_folder, attn_implementation="eager").eval()
    with torch.no_grad():
        result = model(torch.tensor([trace.ids[trace.start : trace.end]]), output_attentions=True).attentions
    assert len(result) == 12
    same_cells(client, look, {f"decoder.{layer}.self": one[0] for layer, one in enumerate(result)})


def test_what_a_marian_looked_at_is_what_transformers_says(client, marian_folder):
    transformers = pytest.importorskip("transformers")
    look = asked(client, str(marian_folder), "The cat sat.")
    source, target = api.load(str(marian_folder), device="cpu")("The cat sat.").trace
    model = transformers.MarianMTModel.from_pretrained(marian_folder, attn_implementation="eager").eval()
    begin = model.config.decoder_start_token_id
    with torch.no_grad():
        result = model(
            torch.tensor([[*source, 0]]), decoder_input_ids=torch.tensor([[begin, *target]]), output_attentions=True
        )
    for name, weights in {
        "encoder.{}.self": result.encoder_attentions,
        "decoder.{}.self": result.decoder_attentions,
        "decoder.{}.cross": result.cross_attentions,
    }.items():
        same_cells(client, look, {name.format(layer): one[0] for layer, one in enumerate(weights)})


@pytest.mark.parametrize(
    ("run", "how"), [("prose", {"max_new_tokens": 6, "temperature": 0}), ("pairs", {}), ("rows", {})]
)
def test_what_a_run_looked_at_is_what_eager_attention_computes(client, place, run, how, monkeypatch):
    look = asked(client, run, "the cat sat on a mat", **how)
    model = api.load(str(place / "runs" / run), device="cpu")
    prediction = model("the cat sat on a mat", **how)
    seen = []

    def eager(q, k, v, attn_mask=None, is_causal=False, scale=None, **_):
        scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        seen.append(scores.softmax(-1)[0])
        return scores.softmax(-1) @ v

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", eager)
    with torch.no_grad():
        model.task.rerun(prediction)
    names = [one["name"] for one in look["maps"] if one["name"] not in ("alignment", "rollout")]
    assert len(names) == len(seen) > 1
    same_cells(client, look, dict(zip(names, seen, strict=True)))


def test_a_language_model_reads_the_prompt_and_generates_when_asked(client, place):
    model = api.load(str(place / "runs/prose"), device="cpu")
    prompt = model.task.tokenizer.pieces(model.task.tokenizer.encode("the cat"))
    look = asked(client, "prose", "the cat")
    assert not look["generated"] and look["output"]["text"] == ""
    assert len(look["maps"][0]["queries"]["labels"]) == len(prompt)
    assert max(look["scores"].values()) <= 1 and len(look["scores"]) > 1, "probabilities of the next token"
    (explained,) = client.get(f"/api/look/{look['id']}/logit-lens").json()[-1]["positions"]
    assert explained["answer"] == max(look["scores"], key=look["scores"].get)
    last = {"map": "decoder.1.self", "head": 0, "query": len(prompt) - 1}
    assert client.get(f"/api/look/{look['id']}/calculation", params=last).status_code == 200
    body = {"model": "prose", "inputs": {"prompt": "the cat"}, "options": {"max_new_tokens": 3}}
    for more in ({}, {"generate": True}):
        answer = client.post("/api/look", json={**body, **more}, headers=MINE).json()
        assert answer["generated"] and len(answer["output"]["text"]) == 3
    answer = client.post("/api/look", json={**body, "options": {}, "generate": True}, headers=MINE).json()
    assert len(answer["output"]["text"]) == 200, "as many as the model generates unless told otherwise"
    answer = client.post("/api/look", json={**body, "generate": "yes"}, headers=MINE)
    assert (answer.status_code, answer.json()["error"]) == (400, "generate must be true or false")


@pytest.mark.slow
def test_one_text_of_minilm_is_explained(place, get_model):
    get_model("minilm")
    client = TestClient(make_app(Sessions(place / "runs", ["minilm"]), "secret", 8000), base_url=HOME)
    client.get("/runs?key=secret")
    look = asked(client, "minilm", "The animal didn't cross the street because it was too tired.")
    path = f"/api/look/{look['id']}"
    effect = client.post(
        f"{path}/effect", json={"ablations": [{"map": "bert.encoder.3.self", "head": 1}]}, headers=MINE
    )
    assert effect.json()["quantity"] == "component along its own vector" and effect.json()["lost"] != 0
    (scores,) = client.get(f"{path}/attribution").json()
    assert any(scores["values"]) and "animal" in scores["axis"]["labels"]
    lens = client.get(f"{path}/logit-lens").json()
    assert [layer["name"] for layer in lens] == [f"bert.encoder.{layer}" for layer in range(6)]
    query = {"map": "bert.encoder.3.self", "head": 1, "query": 11}
    values = client.get(f"{path}/calculation", params=query).json()
    assert len(values["labels"]) == len(look["maps"][0]["queries"]["labels"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minilm", "smollm2"])
def test_models_of_the_catalogue_open_and_look_as_transformers_says(place, get_model, name):
    transformers, path, text = pytest.importorskip("transformers"), get_model(name), "The capital of France is"
    client = TestClient(make_app(Sessions(place / "runs", [name]), "secret", 8000), base_url=HOME)
    client.get("/runs?key=secret")
    opened = api.load(name, device="cpu")
    how = {"attn_implementation": "eager", "dtype": torch.float32}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, about itself
        if name == "minilm":
            look, ids = asked(client, name, text), opened.task.encode(text).ids
            model = transformers.BertModel.from_pretrained(path, **how)
        else:
            look = asked(client, name, text, max_new_tokens=4, temperature=0)
            trace = opened(text, max_new_tokens=4, temperature=0).trace
            ids, how["gguf_file"] = trace.ids[trace.start : trace.end], path.name
            model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, **how)
    with torch.no_grad():
        result = model.eval()(torch.tensor([ids]), output_attentions=True).attentions
    names = [one["name"] for one in look["maps"] if one["name"] != "rollout"]
    same_cells(client, look, dict(zip(names, (one[0] for one in result), strict=True)))


def test_forms_are_built_from_the_inputs_of_the_task(client, place):
    form = client.get("/api/models/questions/form").json()
    assert [(field["name"], field["kind"]) for field in form["inputs"]] == [("question", "text"), ("context", "text")]
    assert set(form["examples"][0]) == {"question", "context"}
    assert not form["generates"] and client.get("/api/models/prose/form").json()["generates"]
    assert "attention" not in [option["name"] for option in form["options"]]
    answer = client.post("/api/look", json={"model": "questions", "inputs": form["examples"][0]}, headers=MINE).json()
    assert answer["output"]["kind"] == "span" and answer["inputs"] == form["examples"][0]


@pytest.fixture
def image_client(image_runs):
    client = TestClient(make_app(Sessions(image_runs, task=IMAGES), "secret", 8000), base_url=HOME)
    assert client.get("/runs?key=secret").status_code == 200
    return client


def test_an_image_is_uploaded_and_comes_back_as_the_grid_of_its_keys(image_client):
    form = image_client.get("/api/models/squares/form").json()
    assert form["inputs"][0]["kind"] == "image"
    (example,) = form["examples"]
    assert example["image"].startswith("data:image/png;base64,"), "an example of the validation data"
    look = image_client.post("/api/look", json={"model": "squares", "inputs": example}, headers=MINE).json()
    axis = look["maps"][0]["queries"]
    assert (axis["kind"], axis["rows"], axis["columns"], axis["size"]) == ("grid", 3, 3, [12, 12])
    assert look["maps"][0]["keys"] is None and look["images"][axis["image"]] == example["image"]
    weights = cells(image_client, look, look["maps"][0]["name"], "mean", 9, 9).reshape(9, 9)
    assert weights.sum(1) == pytest.approx(np.ones(9), abs=1e-3)
    scores = image_client.get(f"/api/look/{look['id']}/attribution").json()
    assert scores[0]["axis"]["kind"] == "grid" and len(scores[0]["values"]) == 9


@pytest.mark.parametrize("value", ["/etc/hostname", "../squares.npz", ""])
def test_a_page_never_names_a_file_of_this_machine(image_client, value):
    body = {"model": "squares", "inputs": {"image": value}}
    answer = image_client.post("/api/look", json=body, headers=MINE)
    assert answer.status_code == 400
    assert answer.json()["error"] == "image must be an uploaded file, but is none; choose a file"


def test_an_upload_has_a_name_by_its_content_under_which_it_is_found_again(image_client, monkeypatch):
    (example,) = image_client.get("/api/models/squares/form").json()["examples"]
    body = {"model": "squares", "inputs": example}
    looks = [image_client.post("/api/look", json=body, headers=MINE).json() for _ in range(2)]
    name = looks[0]["inputs"]["image"]
    assert re.fullmatch("upload:[0-9a-f]{32}", name) and looks[1]["inputs"] == {"image": name}
    answer = image_client.get(f"/api/uploads/{name}")
    assert answer.json() == {"url": example["image"]} and answer.headers["content-type"] == "application/json"
    again = image_client.get("/api/uploads/upload:0123")
    assert (again.status_code, again.json()["error"]) == (
        400,
        "this file is no longer in the memory of the studio; choose it again",
    )
    answer = image_client.post("/api/look", json={"model": "squares", "inputs": {"image": name}}, headers=MINE)
    assert answer.json()["error"] == "image must be an uploaded file, but is none; choose a file"


def test_old_uploads_are_forgotten(image_runs):
    sessions = Sessions(image_runs, task=IMAGES)
    names = [sessions._keep(f"data:image/png;base64,{number}") for number in range(9)]
    assert sessions.upload(names[8]) == "data:image/png;base64,8"
    with pytest.raises(UsageError, match="no longer in the memory of the studio"):
        sessions.upload(names[0])


@pytest.fixture
def caption_client(caption_runs):
    client = TestClient(make_app(Sessions(caption_runs, task=CAPTIONS), "secret", 8000), base_url=HOME)
    assert client.get("/runs?key=secret").status_code == 200
    return client


def caption(client, **inputs):
    example = client.get("/api/models/captions/form").json()["examples"][0]
    answer = client.post("/api/look", json={"model": "captions", "inputs": {**example, **inputs}}, headers=MINE)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_words_over_an_image_share_it_and_have_rollout_and_thumbnails_in_its_shape(caption_client):
    look = caption(caption_client)
    names = [entry["name"] for entry in look["maps"]]
    assert names == ["alignment", "encoder.0.self", "encoder.1.self", "decoder.0.cross", "rollout"]
    assert len(look["images"]) == 1 and look["alignment"] is None
    assert {(entry["keys"] or entry["queries"])["image"] for entry in look["maps"]} == {0}
    overview = caption_client.get(f"/api/look/{look['id']}/overview").json()
    assert {(entry["rows"], entry["columns"]) for entry in overview} == {(4, 6)}
    row = cells(caption_client, look, "rollout", "mean", 1, 25)
    assert row.sum() == pytest.approx(1, abs=1e-3)
    asked = caption(caption_client, question="which side?")
    assert asked["inputs"]["question"] == "which side?" and asked["output"]["text"] in ("left", "right")


@pytest.mark.parametrize(
    ("kind", "parameters", "start"),
    [
        ("gif", {"map": "alignment"}, b"GIF89a"),
        ("png", {"map": "encoder.0.self", "at": "1,2", "opacity": 30, "smooth": 0}, b"\x89PNG"),
        ("svg", {"map": "rollout", "at": "0,0"}, b"<svg"),
    ],
)
def test_figures_over_an_image_are_downloaded_as_they_are_shown(caption_client, kind, parameters, start):
    look = caption(caption_client)
    answer = caption_client.get(f"/api/look/{look['id']}/export.{kind}", params=parameters)
    assert answer.status_code == 200 and answer.content.startswith(start)
    if "opacity" in parameters:
        other = caption_client.get(f"/api/look/{look['id']}/export.{kind}", params={**parameters, "opacity": 90})
        assert other.content != answer.content


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"map": "encoder.0.self", "at": "9,9"}, "at must be 0,0 to 3,5 in 'encoder.0.self', but is 9,9"),
        ({"map": "encoder.0.self", "at": "1"}, "column must be a whole number, but is ''"),
        ({"map": "encoder.0.self", "opacity": "101"}, "opacity must be 0 to 1, but is 1.01"),
    ],
)
def test_a_style_out_of_range_gets_one_line(caption_client, parameters, message):
    look = caption(caption_client)
    answer = caption_client.get(f"/api/look/{look['id']}/export.png", params=parameters)
    assert (answer.status_code, answer.json()["error"]) == (400, message)


def test_a_file_beyond_the_cap_is_refused(image_client):
    body = {"model": "squares", "inputs": {"image": "data:image/png;base64," + "A" * (11 << 20)}}
    answer = image_client.post("/api/look", json=body, headers=MINE)
    assert (answer.status_code, answer.json()["error"]) == (413, "Send a file of at most 8 MB.")


def test_pix2tex_shows_its_attention_over_the_formula(tmp_path):
    folder = test_pix2tex.write(tmp_path / "tiny")
    client = TestClient(make_app(Sessions(tmp_path / "runs", [str(folder)]), "secret", 8000), base_url=HOME)
    assert client.get("/look?key=secret").status_code == 200
    picture = (Path(test_pix2tex.__file__).parent / "formulas" / "sum.png").read_bytes()
    inputs = {"image": f"data:image/png;base64,{base64.b64encode(picture).decode()}"}
    answer = client.post("/api/look", json={"model": str(folder), "inputs": inputs}, headers=MINE)
    assert answer.status_code == 200, answer.text
    maps = {attention["name"]: attention for attention in answer.json()["maps"]}
    cross = maps["decoder.1.cross"]
    assert cross["queries"]["kind"] == "tokens" and cross["keys"]["kind"] == "grid"
    assert cross["keys"]["extra"] == ["class"]
    assert answer.json()["images"][cross["keys"]["image"]].startswith("data:image/png;base64,")
