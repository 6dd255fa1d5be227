"""Tasks: typed inputs as JSON or as a form, batches, attention; one thread computes what waits together."""

import asyncio
import base64
import gc
import http.client
import io
import json
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image
from starlette.requests import Request

from saccade import api
from saccade.decode.engine import Engine
from saccade.errors import DataError
from saccade.serve import bodies, limits
from saccade.serve.errors import ApiError, JsonResponse
from saccade.serve.worker import Worker
from tests.serve.live import wait_for


def picture(colour=(200, 30, 30)) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (24, 24), colour).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def classifier(runs):
    return api.load("image_classification", root=runs, device="cpu")


def test_a_task_with_text(live, runs):
    answer = live.post("/v1/tasks/translation", inputs={"source": "the cat"}, options={"beam": 2})
    expected = api.load("translation", root=runs, device="cpu")("the cat", beam=2)
    body = answer.json()
    assert (answer.status_code, body["model"], body["task"]) == (200, "translation", "translation")
    (prediction,) = body["predictions"]
    assert prediction["output"] == {"kind": "text", "text": expected.text} and "inputs" not in prediction


def test_a_batch_keeps_its_order(live):
    texts = ["the cat", "a dog ran", "the red mat", "the cat"]
    answer = live.post("/v1/tasks/sentence_vectors", inputs=[{"first": text} for text in texts])
    vectors = [prediction["output"]["vector"] for prediction in answer.json()["predictions"]]
    alone = live.post("/v1/tasks/sentence_vectors", inputs={"first": "a dog ran"}).json()["predictions"][0]
    assert vectors[0] == pytest.approx(vectors[3]) and vectors[1] == pytest.approx(alone["output"]["vector"], abs=1e-5)


def test_attention_has_maps_with_axes(live):
    answer = live.post("/v1/tasks/translation", inputs={"source": "the cat"}, attention=True)
    (prediction,) = answer.json()["predictions"]
    first = prediction["maps"][0]
    assert first["queries"]["labels"][:2] == ["the", "cat"] and first["keys"]["kind"] == "tokens"
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for head in first["weights"] for row in head)


def test_attention_that_is_too_large_is_refused(live, monkeypatch):
    monkeypatch.setattr(limits, "WEIGHTS", 10)
    answer = live.post("/v1/tasks/translation", inputs={"source": "the cat"}, attention=True)
    assert answer.status_code == 400
    message = "attention must have at most 10 weights in a response, 10 for each of its predictions, but one has"
    assert message in answer.json()["error"]["message"]


def test_the_attention_of_all_predictions_of_a_response_is_limited(live, monkeypatch):
    (prediction,) = live.post("/v1/tasks/translation", inputs={"source": "the cat"}, attention=True).json()[
        "predictions"
    ]
    count = sum(len(row) for map in prediction["maps"] for head in map["weights"] for row in head)
    monkeypatch.setattr(limits, "WEIGHTS", count + 1)  # each of two is just under the limit
    statuses = [
        live.post("/v1/tasks/translation", inputs=[{"source": "the cat"}] * size, attention=True).status_code
        for size in (1, 2)
    ]
    assert statuses == [200, 400]


def test_requests_of_different_sizes_that_wait_together_have_their_own_limits(live, monkeypatch):
    monkeypatch.setattr(limits, "WEIGHTS", 1 << 12)
    worker, gate = live.state.models["translation"].worker, threading.Event()
    bodies = [{"inputs": [{"source": "the cat"}] * size, "attention": True} for size in (1, 40)]
    with ThreadPoolExecutor(2) as pool:
        blocked = asyncio.run_coroutine_threadsafe(
            worker.run(lambda items: iter([gate.wait(30)]), [0], "blocked"), worker._loop
        )
        answers = []
        for at, body in enumerate(bodies):
            answers.append(pool.submit(live.post, "/v1/tasks/translation", **body))
            wait_for(lambda at=at: worker.taken == at + 1)
        time.sleep(0.2)  # both wait
        gate.set()
        blocked.result()
        assert [answer.result().status_code for answer in answers] == [200, 400]


@pytest.mark.parametrize("form", ["base64", "data URL", "upload"])
def test_an_image_in_each_form(live, classifier, form):
    data = picture()
    encoded = base64.b64encode(data).decode()
    if form == "upload":
        answer = live.client.post("/v1/tasks/image_classification", files={"image": ("a.png", data)})
    else:
        text = f"data:image/png;base64,{encoded}" if form == "data URL" else encoded
        answer = live.post("/v1/tasks/image_classification", inputs={"image": text})
    expected = classifier(data).output.to_json()
    output = answer.json()["predictions"][0]["output"]
    assert output["labels"] == expected["labels"]
    assert output["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)


def test_several_uploads_are_a_batch(live):
    files = [("image", ("a.png", picture(colour))) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    answer = live.client.post("/v1/tasks/image_classification", files=files, data={"attention": "true"})
    predictions = answer.json()["predictions"]
    assert len(predictions) == 3 and all(prediction["maps"] for prediction in predictions)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([("image", ("a.png", b"nothing"))], "image"),
        ([("image", ("a.png", b""))], "image"),
        ([("picture", ("a.png", b"x"))], "no input 'picture'"),
        ([("image", ("a.png", b"x")), ("options", (None, "{"))], "the body must be valid JSON"),
        ([("image", ("a.png", b"x")), ("options", (None, '{"x": 1}'))], "no option 'x'"),
        (
            [("image", ("a.png", b"x")), ("attention", (None, "maybe"))],
            "attention must be true or false, but is 'maybe'",
        ),
        ([("options", (None, "{}"))], "image must be given, but is not"),
        (
            [("image", ("a.png", b"x")), ("options", (None, "{}")), ("options", (None, "{}"))],
            "options must be given once",
        ),
    ],
)
def test_a_bad_form_is_refused(live, files, message):
    answer = live.client.post("/v1/tasks/image_classification", files=files)
    assert answer.status_code == 400 and message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=x", "multipart/form-data; boundary="]
)
@pytest.mark.parametrize(
    "content", [b"", b"x", b"--x", b"--x\r\n", b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--\r\n"]
)
def test_a_damaged_form_is_refused(live, kind, content):
    answer = live.client.post("/v1/tasks/image_classification", content=content, headers={"content-type": kind})
    assert answer.status_code == 400


def test_others_go_on_while_a_large_form_is_parsed(monkeypatch):
    size, turns, parts = 4 << 20, [0], []
    head = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    body = head + bytes(size) + b"\r\n--x--\r\n"
    request = Request({"type": "http", "headers": [(b"content-type", b"multipart/form-data; boundary=x")]})

    class Parser(bodies.MultiPartParser):
        def __init__(self, headers, stream, **limits):
            super().__init__(headers, self.watch(stream), **limits)

        async def watch(self, stream):
            async for part in stream:
                parts.append((len(part), turns[0]))
                yield part

    async def count():
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def main():
        counting = asyncio.create_task(count())
        form = await bodies.parse_form(request, body)
        counting.cancel()
        return form

    monkeypatch.setattr(bodies, "MultiPartParser", Parser)
    with ThreadPoolExecutor(1) as pool:
        form = pool.submit(lambda: asyncio.run(main())).result()
    assert form.parts == {"image": [bytes(size)]}
    assert max(length for length, _ in parts) <= bodies.LARGE and len(parts) > 50
    assert len({turn for _, turn in parts}) == len(parts)  # a turn of the others before each part


def test_a_text_can_be_a_part_of_a_form(live):
    plain = live.post("/v1/tasks/translation", inputs={"source": "the cat"}, options={"beam": 3}).json()
    form = live.client.post(
        "/v1/tasks/translation", files={"source": (None, "the cat"), "options": (None, '{"beam": 3}')}
    )
    assert form.json() == plain


def test_the_declaration_of_a_task(live):
    body = live.client.get("/v1/tasks/translation").json()
    assert [field["name"] for field in body["inputs"]] == ["source"]
    assert body["attention"] and "beam" in [option["name"] for option in body["options"]]
    assert live.client.get("/v1/tasks").json()["data"][0]["model"] == "prose"


def test_only_models_with_a_chat_template_are_listed_for_chats(live):
    endpoints = {entry["id"]: entry["endpoints"] for entry in live.client.get("/v1/models").json()["data"]}
    assert endpoints["chat"] == ["/v1/completions", "/v1/chat/completions", "/v1/tasks/chat"]
    assert endpoints["prose"] == ["/v1/completions", "/v1/tasks/prose"]
    assert endpoints["translation"] == ["/v1/completions", "/v1/tasks/translation"]
    assert endpoints["image_classification"] == ["/v1/tasks/image_classification"]


@pytest.mark.parametrize("attention", [False, True])
def test_a_client_of_a_task_that_leaves_ends_its_generation_within_one_step(live, monkeypatch, attention):
    worker, step, steps = live.state.models["prose"].worker, Engine.step, []

    def slow(engine):
        time.sleep(0.02)
        events = step(engine)
        steps.append(time.monotonic())
        return events

    monkeypatch.setattr(Engine, "step", slow)
    connection = http.client.HTTPConnection("127.0.0.1", live.port)
    body = {"inputs": [{"prompt": "a"}] * 3, "options": {"max_new_tokens": 400}, "attention": attention}
    connection.request(
        "POST", "/v1/tasks/prose", json.dumps(body), {"content-type": "application/json", **live.headers}
    )
    wait_for(lambda: len(steps) > 3)
    connection.close()
    wait_for(lambda: worker.taken == 0)
    left = time.monotonic()
    assert live.post("/v1/tasks/prose", inputs={"prompt": "a"}, options={"max_new_tokens": 0}).status_code == 200
    assert len([at for at in steps if at > left]) <= 2  # that which was being computed, and one of this request


def test_a_body_that_is_still_being_sent_takes_no_place(live):
    worker, sent = live.state.models["translation"].worker, threading.Event()
    content = json.dumps({"inputs": {"source": "the cat"}}).encode()

    def slow():
        yield content[:5]
        sent.wait(10)
        yield content[5:]

    with ThreadPoolExecutor(1) as pool:
        headers = {"content-type": "application/json"}
        answer = pool.submit(live.client.post, "/v1/tasks/translation", content=slow(), headers=headers)
        wait_for(lambda: live.state.bodies.held == 5)
        taken = worker.taken
        sent.set()
        assert answer.result().status_code == 200 and taken == 0


def run_jobs(worker, jobs):
    """Run jobs that wait together, and return what came of each."""

    async def main():
        worker.start()
        gate = threading.Event()
        first = asyncio.create_task(worker.run(lambda items: iter([gate.wait()]), [0], "first"))
        await asyncio.sleep(0.05)
        tasks = [asyncio.create_task(worker.run(*job)) for job in jobs]
        await asyncio.sleep(0.05)
        gate.set()
        await first
        results = await asyncio.gather(*tasks, return_exceptions=True)
        worker.stop()
        return results

    with ThreadPoolExecutor(1) as pool:  # a browser of other tests has an event loop in this thread
        return pool.submit(lambda: asyncio.run(main())).result()


def test_a_large_response_is_made_beside_the_event_loop(live, monkeypatch):
    render, threads = JsonResponse.render, []

    def watch(response, content):
        threads.append(threading.current_thread())
        return render(response, content)

    monkeypatch.setattr(JsonResponse, "render", watch)
    bodies = {
        "/v1/tasks/translation": {"inputs": {"source": "the cat"}, "attention": True},
        "/v1/embeddings": {"model": "sentence_vectors", "input": "the cat"},
        "/v1/completions": {"model": "prose", "prompt": "a", "logprobs": 5},
    }
    for path, body in bodies.items():
        assert live.post(path, **body).status_code == 200
    assert len(threads) == 3 and live.thread not in threads


def test_requests_that_wait_are_computed_together():
    batches = []

    def double(items):
        batches.append(list(items))
        return (2 * item for item in items)

    assert run_jobs(Worker(9), [(double, [1], "a"), (double, [2, 3], "a"), (double, [4], "b")]) == [[2], [4, 6], [8]]
    assert batches == [[1, 2, 3], [4]]


def test_a_client_that_leaves_takes_its_inputs_with_it():
    """While something else is computed, and when the worker is idle again."""

    class Item:
        pass

    async def main():
        worker, gate, items = Worker(9), threading.Event(), weakref.WeakSet()

        def item():
            items.add(new := Item())
            return [new]

        worker.start()
        first = asyncio.create_task(worker.run(lambda items: iter([gate.wait(30)]), item(), "first"))
        await asyncio.sleep(0.05)
        waiting = [asyncio.create_task(worker.run(iter, item(), key)) for key in ("a", "a", "b")]
        await asyncio.sleep(0.05)
        assert len(items) == 4
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        del waiting, task
        await asyncio.sleep(0.05)  # the loop forgets them too
        gc.collect()
        left = len(items)
        gate.set()
        await first
        del first
        await asyncio.sleep(0.05)
        gc.collect()
        worker.stop()
        return left, len(items)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(main())).result() == (1, 0)


def test_the_mistake_of_one_request_is_not_the_error_of_another():
    def check(items):
        for item in items:
            if item < 0:
                raise DataError(f"an item must not be negative, but is {item}")
            yield item

    results = run_jobs(Worker(9), [(check, [1], "a"), (check, [-2], "a"), (check, [3], "a")])
    assert results[0] == [1] and results[2] == [3] and str(results[1]) == "an item must not be negative, but is -2"


def test_a_full_worker_refuses():
    worker = Worker(1)
    refused = pytest.raises(ApiError, match="2 requests for this model wait")
    with worker.place(), worker.place(), refused as caught, worker.place():
        pass
    assert caught.value.status == 429 and worker.taken == 0
