"""Limits of the studio: long and empty texts, odd numbers, clients that do not read, and who waits for whom."""

import asyncio
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from saccade import api
from saccade.cli import main
from saccade.errors import UsageError
from saccade.studio import generation, security
from saccade.studio.forms import TEXT_BYTES
from saccade.studio.sessions import Sessions
from saccade.studio.work import AT_ONCE
from tests.studio.conftest import HOME, MINE

INPUTS = {
    "prose": {"prompt": "the cat"},
    "pairs": {"source": "the cat"},
    "rows": {"text": "the cat"},
    "questions": {"question": "the what?", "context": "the cat sat."},
}


def run_alone(coroutine):
    """Run a coroutine in a thread: that of the tests may have an event loop, of the browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def post(client, path, body):
    """The answer to a request with a JSON body, which may hold what no browser would send."""
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    return client.post(path, content=content, headers={**MINE, "content-type": "application/json"})


def error(answer, code=400):
    assert answer.status_code == code, answer.text
    return answer.json()["error"]


@pytest.mark.parametrize(
    ("model", "inputs", "options", "message"),
    [
        ("prose", {"prompt": "the cat " * 20}, {}, r"prompt must have at most 64 tokens, but has \d+; shorten it"),
        ("pairs", {"source": "the cat " * 9000}, {}, r"source must have at most 257 tokens, but has \d\d,\d+;"),
        ("pairs", {"source": "a"}, {"prefix": "the cat " * 900}, "prefix must have at most 257 tokens, but has"),
        ("pairs", {"source": "a"}, {"target": "the cat " * 900}, "target must have at most 257 tokens, but has"),
        ("rows", {"text": "cat " * 31}, {}, "text must have at most 32 tokens, but has 33; shorten it"),
        ("questions", {"question": "what " * 30, "context": "a"}, {}, "question must have at most 21 tokens, but has"),
        ("questions", {"question": "a", "context": "cat " * 16385}, {}, "context must have at most 16,384 tokens, but"),
    ],
)
def test_a_text_beyond_the_model_is_refused_with_both_numbers(client, model, inputs, options, message, monkeypatch):
    monkeypatch.setattr(Sessions, "predict", lambda *_: pytest.fail("the model was asked"))
    body = {"model": model, "inputs": inputs, "options": options}
    assert re.match(message, error(post(client, "/api/look", body)))
    if model in ("prose", "pairs"):
        assert re.match(message, error(post(client, "/api/generate", body)))


def test_a_pretrained_model_has_the_limit_of_its_positions(client, bert_folder, gpt2_folder, marian_folder):
    limits = {bert_folder: ("text", 40), gpt2_folder: ("prompt", 4096), marian_folder: ("source", 64)}
    for folder, (field, limit) in limits.items():
        body = {"model": str(folder), "inputs": {field: "the [MASK] " * 3000}}
        assert re.match(f"{field} must have at most {limit:,} tokens", error(post(client, "/api/look", body)))


@pytest.mark.parametrize("text", ["a" * (TEXT_BYTES + 1), "data:," + "a" * TEXT_BYTES])
def test_a_text_beyond_the_cap_is_not_even_tokenized(client, text, monkeypatch):
    client.get("/api/models/rows/form")
    monkeypatch.setattr("saccade.model.Model.input_lengths", lambda *_, **__: pytest.fail("it was tokenized"))
    for where in ({"inputs": {"text": text}}, {"inputs": {"text": "a"}, "options": {"stop": text + "a"}}):
        message = error(post(client, "/api/look", {"model": "rows", **where}), 413)
        assert re.fullmatch(r"Send at most 1,048,576 characters of text, not 1,048,5[78]\d\.", message)


@pytest.mark.parametrize(("name", "value", "most"), [("max_new_tokens", 5000, "4,096"), ("max_new_tokens", "1e18", "")])
def test_an_option_that_multiplies_the_work_is_bounded(client, name, value, most):
    body = {"model": "prose", "inputs": {"prompt": "a"}, "options": {name: value}}
    assert error(post(client, "/api/generate", body)).startswith(f"{name} must be {'at most ' + most if most else 'a'}")


@pytest.mark.parametrize("model", INPUTS)
@pytest.mark.parametrize("text", ["", "  \n", "\u200b", "a\ud800b", None, 5])
def test_a_text_that_says_nothing_gets_one_clear_line(client, model, text):
    """An empty prompt is a prompt, from which generation starts, and any character can be an unknown word."""
    for name in INPUTS[model]:
        answer = post(client, "/api/look", {"model": model, "inputs": {**INPUTS[model], name: text}})
        if (name == "prompt" and text in ("", "  \n")) or (name == "source" and text == "\u200b"):
            assert answer.status_code == 200
            continue
        rules = "must (hold text|have at least one token|be valid Unicode|be given|be a text)|character 1 of the text"
        assert re.search(rules, error(answer))


@pytest.mark.parametrize("command", ["look", "predict"])
@pytest.mark.parametrize("text", ["", " \n"])
def test_the_command_line_says_it_in_one_line(place, command, text):
    for model, inputs in INPUTS.items():
        given = [*list(inputs.values())[:-1], text]
        result = CliRunner().invoke(main, [command, model, *given, "--runs", str(place / "runs")])
        if model == "prose":
            assert result.exit_code == 0, result.stderr
            continue
        name = list(inputs)[-1]
        assert (result.exit_code, result.stdout) == (2, ""), (model, result.exception)
        assert result.stderr == f"saccade: {name} must hold text, but is {text!r}; write something in it\n"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("cells?map=encoder.0.self&top=0&bottom=2&left=0&right=2&down=0", "down must be at least 1, but is 0"),
        ("cells?map=encoder.0.self&top=0&bottom=2&left=0&right=2&across=0", "across must be at least 1, but is 0"),
        ("cells?map=encoder.0.self&top=2&bottom=1&left=0&right=2", "rows must be within 0 to"),
        ("cells?map=encoder.0.self&top=0&bottom=" + "9" * 5000 + "&left=0&right=2", "bottom must be a whole number"),
        ("calculation?map=encoder.0.self&head=99&query=0", "head must be 0 to 1"),
        ("attribution?position=99", "position must be 0 to"),
        ("nothing", "no part 'nothing' of a prediction"),
    ],
)
def test_numbers_out_of_range_get_one_clear_line(client, path, message):
    look = post(client, "/api/look", {"model": "pairs", "inputs": INPUTS["pairs"]}).json()
    assert message in error(client.get(f"/api/look/{look['id']}/{path}"))
    assert "step must be a whole number" in error(client.get("/api/runs/pairs/attention/" + "9" * 5000))


def test_no_columns_are_no_weights(client):
    look = post(client, "/api/look", {"model": "pairs", "inputs": INPUTS["pairs"]}).json()
    for span in ("top=0&bottom=2&left=1&right=1&across=3", "top=1&bottom=1&left=0&right=2&down=4"):
        answer = client.get(f"/api/look/{look['id']}/cells?map=encoder.0.self&{span}")
        assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("body", ['{"model": "rows", "inputs": {"text": NaN}}', '{"a": Infinity}', '{"a": -Infinity}'])
def test_what_is_not_json_is_refused(client, body):
    assert "JSON has no" in error(post(client, "/api/look", body))


def test_answers_are_strict_json_also_where_a_number_is_not_finite(client, monkeypatch):
    monkeypatch.setattr("saccade.studio.inspection.importance", lambda _: {"a": [float("nan"), float("-inf"), 0.5]})
    look = post(client, "/api/look", {"model": "rows", "inputs": INPUTS["rows"]}).json()
    answer = client.get(f"/api/look/{look['id']}/importance")
    assert answer.text == '{"a": [null, null, 0.5]}'


def test_downloads_need_no_temporary_folder(client, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    look = post(client, "/api/look", {"model": "pairs", "inputs": INPUTS["pairs"]}).json()
    assert client.get(f"/api/look/{look['id']}/export.png?map=encoder.0.self").content.startswith(b"\x89PNG")


def test_a_file_that_nothing_could_open_is_refused(client, gpt2_folder):
    body = {"model": str(gpt2_folder), "inputs": {"prompt": "abcdefgh" * 265}, "options": {"max_new_tokens": 1}}
    look = post(client, "/api/look", body).json()
    for kind, most in (("svg", "262,144"), ("png", "4,194,304"), ("html", "33,554,432"), ("json", "4,194,304")):
        message = error(client.get(f"/api/look/{look['id']}/export.{kind}?map=decoder.0.self"))
        assert message.startswith(f"a file of {kind} must hold at most {most} weights, but there are ")


@pytest.mark.parametrize(
    "path",
    [
        *("//evil.example/", "///evil.example", "/\\evil.example", "/%5Cevil.example", "//evil.example/%2e%2e"),
        *("/%2F/evil.example", "/%09/evil.example", "/%0D%0Alocation:%20http://evil.example", "/%2f%2fevil.example"),
        *("/runs", "/", "/look"),
    ],
)
def test_the_key_leads_to_a_path_of_this_server_and_nowhere_else(app, path):
    client = TestClient(app, base_url=HOME, follow_redirects=False)
    answer = client.get(f"{HOME}{path}?a=b%20c&key=x&key=secret&map=%2F%2F")
    assert answer.status_code == 303
    location = answer.headers["location"]
    assert re.fullmatch(r"/(?![/\\])[\x21-\x7e]*\?a=b\+c&map=%2F%2F", location)
    assert "\\" not in location and "secret" not in location


@pytest.mark.parametrize("path", ["http://evil.example/", "//evil.example/runs", "*", "evil.example:80", "/runs/"])
def test_no_other_address_is_answered_or_redirected_to(app, path):
    """The raw target of a request, as a proxy would send it."""
    sent = []

    async def send(message):
        sent.append(message)

    cookie = f"saccade-8000={app.key}".encode()
    scope = {
        **{"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""},
        **{"http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 8000), "root_path": ""},
        "headers": [(b"host", b"127.0.0.1:8000"), (b"cookie", cookie)],
    }
    run_alone(app(scope, None, send))
    assert sent[0]["status"] in (400, 404)
    assert b"location" not in dict(sent[0]["headers"])


def test_a_cancelled_prediction_ends_and_no_other(client):
    body = {"model": "rows", "inputs": {"text": "the red cat"}, "options": {}}
    assert client.post("/api/progress/mine", json={}, headers=MINE).status_code == 200
    answer = client.post("/api/look", json={**body, "ticket": "mine"}, headers=MINE)
    assert answer.status_code == 400 and answer.json() == {"error": "the prediction was cancelled"}
    assert client.post("/api/look", json={**body, "ticket": "other"}, headers=MINE).status_code == 200
    assert client.post("/api/progress/mine", json={}).status_code == 403


def test_a_model_that_is_being_opened_delays_no_other(place, monkeypatch):
    opened, sessions = threading.Event(), Sessions(place / "runs")
    load = api.load

    def slowly(name, **options):
        if name == "rows":
            opened.wait(120)
        return load(name, **options)

    monkeypatch.setattr(api, "load", slowly)
    waiting = threading.Thread(target=sessions.model, args=("rows",))
    waiting.start()
    assert sessions.model("pairs").name == "pairs"
    assert waiting.is_alive()
    opened.set()
    waiting.join()


def test_pages_are_answered_while_every_place_computes_and_the_next_computation_is_refused(app, monkeypatch):
    release, running = threading.Event(), threading.Semaphore(0)

    def computing(*_, **__):
        running.release()
        release.wait(120)
        raise UsageError("done")

    monkeypatch.setattr(Sessions, "predict", computing)
    with TestClient(app, base_url=HOME) as client:
        assert client.get("/runs?key=secret").status_code == 200
        body = {"model": "rows", "inputs": INPUTS["rows"]}
        threads = [threading.Thread(target=post, args=(client, "/api/look", body)) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert running.acquire(timeout=30)
        assert client.get("/runs.json").status_code == client.get("/look").status_code == 200
        answer = post(client, "/api/look", body)
        assert all(thread.is_alive() for thread in threads)  # none of the three has waited for a place
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert error(answer, 429) == f"the studio is computing {AT_ONCE} answers; try again in a moment"
        release.set()
        for thread in threads:
            thread.join()
        assert error(post(client, "/api/look", body)) == "done"


class Reader:
    """A client of an ASGI application that takes the first parts of an answer and then reads nothing."""

    def __init__(self, app, body, parts):
        self.app, self.body, self.parts, self.taken = app, json.dumps(body).encode(), parts, 0
        self.left = asyncio.Event()

    async def send(self, message):
        if message["type"] == "http.response.body":
            self.taken += 1
            if self.taken > self.parts:
                await asyncio.sleep(3600)

    async def receive(self):
        body, self.body = self.body, None
        if body is None:
            await self.left.wait()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}

    async def run(self):
        headers = {"host": "127.0.0.1:8000", "origin": HOME, "content-type": "application/json"}
        headers |= {"content-length": str(len(self.body)), "cookie": f"saccade-8000={self.app.key}"}
        scope = {
            **{"type": "http", "method": "POST", "path": "/api/generate", "raw_path": b"/api/generate"},
            **{"query_string": b"", "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 8000)},
            **{"headers": [(name.encode(), value.encode()) for name, value in headers.items()], "root_path": ""},
        }
        await self.app(scope, self.receive, self.send)


LONG = {"model": "prose", "inputs": {"prompt": "the"}, "options": {"max_new_tokens": 4000}}


def generating():
    return [thread for thread in threading.enumerate() if thread.name == generation.THREAD]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_reader_that_stalls_or_leaves_ends_its_generation(app, leaves, monkeypatch):
    for module in (security, generation):
        monkeypatch.setattr(module, "STALL", 30.0 if leaves else 0.3)
    counted = []
    monkeypatch.setattr(generation.Generation, "_put", counting(generation.Generation._put, counted))

    async def main():
        reader = Reader(app, LONG, parts=5)
        task = asyncio.create_task(reader.run())
        while reader.taken < 5:
            await asyncio.sleep(0.01)
        if leaves:
            reader.left.set()
        await asyncio.wait_for(task, 10)

    run_alone(main())
    for thread in generating():
        thread.join(10)
        assert not thread.is_alive()
    assert len(counted) < 5 + generation.AHEAD + 10


def counting(put, counted):
    def counted_put(self, line):
        counted.append(line)
        put(self, line)

    return counted_put


def test_while_a_reader_stalls_the_same_model_answers_others(app, monkeypatch):
    for module in (security, generation):
        monkeypatch.setattr(module, "STALL", 60.0)

    async def main():
        reader = Reader(app, LONG, parts=1)
        task = asyncio.create_task(reader.run())
        while not reader.taken:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        other = Reader(app, {**LONG, "options": {"max_new_tokens": 5}}, parts=1000)
        await asyncio.wait_for(other.run(), 30)
        assert not task.done()  # it still stalls
        reader.left.set()
        await asyncio.wait_for(task, 30)

    run_alone(main())
