"""Many texts at once: equal to single ones, cancelled with their client, refused without a place, and drained."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from saccade.errors import DataError, ModelFileError, ResourceError, SaccadeError, UsageError
from tests.serve.live import KEY, WORDS, serving, wait_for

LONG = {"max_tokens": 400, "ignore_eos": True, "temperature": 0}


def stream(live, **body):
    """Start a stream and return its connection after the first chunk."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=30)
    content = json.dumps({"model": "prose", "prompt": "the cat", "stream": True, **LONG, **body})
    headers = {"content-type": "application/json", **live.headers}
    connection.request("POST", "/v1/completions", content, headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.readline().startswith(b"data: ")
    return connection, response


def test_greedy_answers_under_load_equal_single_answers(live):
    prompts = [f"{first} {second}" for first in WORDS[:6] for second in WORDS[4:8]]
    body = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
    single = [live.complete(prompt, **body).json()["choices"][0]["text"] for prompt in prompts]

    def ask(prompt):
        with httpx.Client(base_url=live.address, headers=live.headers, timeout=60) as client:
            while True:
                answer = client.post("/v1/completions", json={"model": "prose", "prompt": prompt, **body})
                if answer.status_code != 429:
                    return answer.json()["choices"][0]["text"]
                time.sleep(0.02)

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, prompts)) == single


def test_sampled_answers_do_not_depend_on_others(live):
    body = {"max_tokens": 30, "seed": 7, "ignore_eos": True}
    alone = live.complete(**body).json()["choices"][0]["text"]
    with live.slow(0.01):
        connection, _ = stream(live)
        assert live.complete(**body).json()["choices"][0]["text"] == alone
        assert live.generator().live == 1  # the other is still generated
        connection.close()


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_frees_its_row_within_one_step(live, streamed):
    generator, steps, closed, removed = live.generator(), [], [], []  # the last two: steps that had begun
    engine = generator.engine
    with live.slow(0.05):
        step, remove, close = engine.step, engine.remove, generator.close
        engine.step = lambda: (steps.append(None), step())[1]
        engine.remove = lambda number: (removed.append(len(steps)), remove(number))[1]
        generator.close = lambda generation: (closed.append(len(steps)), close(generation))[1]
        try:
            if streamed:
                connection, response = stream(live)
                response.close()
            else:
                connection = http.client.HTTPConnection("127.0.0.1", live.port)
                content = json.dumps({"model": "prose", "prompt": "a", **LONG})
                connection.request(
                    "POST", "/v1/completions", content, {"content-type": "application/json", **live.headers}
                )
                wait_for(lambda: generator.live == 1 and len(steps) > 3)
            connection.close()
            wait_for(lambda: removed and generator.live == 0 and generator.taken == 0)
            assert removed[0] - closed[0] <= 1
        finally:
            del engine.remove, generator.close
    assert "saccade_cancelled_total" in live.client.get("/metrics").text


def test_a_full_queue_is_refused_at_once_with_the_time_to_wait(runs):
    with serving(runs, ("prose",), rows=1, queue=2) as live, live.slow(0.02):
        connections = [stream(live)[0]]
        bodies = json.dumps({"model": "prose", "prompt": "the cat", **LONG})
        for _ in range(2):
            connections.append(http.client.HTTPConnection("127.0.0.1", live.port))
            connections[-1].request("POST", "/v1/completions", bodies, {"content-type": "application/json"})
        wait_for(lambda: live.generator().taken == 3)
        answer = live.complete()
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
        assert "1 texts are generated and 2 can wait, and all places are taken; try again in" in error["message"]
        metrics = live.client.get("/metrics").text
        assert 'saccade_queue_length{model="prose"} 2' in metrics and 'saccade_rows_in_use{model="prose"} 1' in metrics
        for connection in connections:
            connection.close()
        wait_for(lambda: live.generator().taken == 0)
        assert live.complete(max_tokens=2).status_code == 200


def test_a_request_that_is_refused_gives_its_place_back(live):
    for body in ({"prompt": [9999]}, {"prompt": "a" * 600}, {"logit_bias": {"9999": 1}}):
        assert live.complete(**{"prompt": "a", **body}).status_code == 400
    wait_for(lambda: live.generator().taken == 0)


def test_many_prompts_are_encoded_beside_the_event_loop(live):
    generator, threads = live.generator(), set()
    encode = generator.engine.encode

    def watch(text):
        threads.add(threading.current_thread())
        return encode(text)

    generator.engine.encode = watch
    try:
        assert live.complete(["the cat sat " * 36] * 12, max_tokens=1).status_code == 200
    finally:
        del generator.engine.encode
    assert len(threads) == 1 and live.thread not in threads  # all in one call


def test_a_reader_that_stalls_is_given_up(live, monkeypatch):
    monkeypatch.setattr("saccade.serve.limits.STALL", 0.2)
    connection = http.client.HTTPConnection("127.0.0.1", live.port)
    connection.connect()
    connection.sock.setsockopt(1, 8, 2048)  # SOL_SOCKET, SO_RCVBUF
    content = json.dumps({"model": "prose", "prompt": "a", "stream": True, "n": 8, "logprobs": 20, **LONG})
    connection.request("POST", "/v1/completions", content, {"content-type": "application/json", **live.headers})
    wait_for(lambda: live.generator().live > 0)
    wait_for(lambda: live.generator().taken == 0, 60)
    connection.close()
    assert live.complete(max_tokens=1).status_code == 200


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModelFileError("logits must be finite, but are not"), "logits must be finite"),
        (KeyError("x"), "its log says why"),
    ],
)
def test_an_engine_that_fails_ends_its_requests_and_goes_on(live, error, message, caplog):
    engine = live.generator().engine

    def fail():
        raise error

    engine.step = fail
    try:
        answer = live.complete()
    finally:
        del engine.step
    assert answer.status_code == 500 and message in answer.json()["error"]["message"]
    assert live.complete(max_tokens=1).status_code == 200 and live.generator().taken == 0


@pytest.mark.parametrize(
    ("error", "status", "code", "param"),
    [
        (UsageError("a role must be a word"), 400, "invalid_value", "messages"),
        (DataError("the tokenizer has no letter"), 400, "invalid_value", "messages"),
        (ResourceError("memory is full"), 503, "resource_error", None),
        (ModelFileError("the template is damaged"), 500, "model_error", None),
        (SaccadeError("something else"), 500, "internal_error", None),
    ],
)
def test_an_error_of_a_conversation_is_that_of_the_client_only_if_it_made_it(live, error, status, code, param):
    engine = live.generator("chat").engine

    def fail(messages):
        raise error

    engine.encode_chat = fail
    try:
        answer = live.post("/v1/chat/completions", model="chat", messages=[{"role": "user", "content": "the cat"}])
    finally:
        del engine.encode_chat
    found = answer.json()["error"]
    assert (answer.status_code, found["message"], found["code"], found["param"]) == (status, str(error), code, param)


def test_an_engine_that_fails_to_add_a_request_goes_on(live, caplog):
    engine = live.generator().engine
    add, added = engine.add, []

    def fail_second(request):
        if added:
            raise MemoryError
        added.append(add(request))
        return added[0]

    engine.add = fail_second
    try:
        assert live.complete(n=2).status_code == 500
    finally:
        del engine.add
    assert live.complete(max_tokens=1).status_code == 200 and (live.generator().taken, len(engine)) == (0, 0)


def test_a_command_that_fails_ends_its_request_and_the_engine_goes_on(live, caplog):
    """Where also the request that was added cannot be removed."""
    engine = live.generator().engine
    add, numbers = engine.add, []

    def fail_second(request):
        if numbers:
            raise MemoryError
        numbers.append(add(request))
        return numbers[0]

    def fail(number):
        raise KeyError(number)

    engine.add, engine.remove = fail_second, fail
    try:
        assert live.complete(n=2).status_code == 500
    finally:
        del engine.add, engine.remove
    assert live.complete(max_tokens=1).status_code == 200 and live.generator().taken == 0
    assert live.client.get("/ready").status_code == 200
    wait_for(lambda: len(engine) == 0)  # what could not be removed ends by itself


def test_an_engine_whose_thread_ends_fails_its_requests_and_is_not_ready(runs, caplog):
    with serving(runs, ("prose", "chat"), rows=2) as live:
        generator = live.generator()
        engine = generator.engine
        connection, response = stream(live)

        def fail(*_):
            raise KeyError("x")

        engine.remove = engine.step = fail
        events = response.read().decode()  # ends
        connection.close()
        assert '"code": "internal_error"' in events and generator.taken == 0
        wait_for(lambda: not generator.alive)
        answer = live.complete()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_failed")
        ready = live.client.get("/ready")
        assert (ready.status_code, ready.json()) == (503, {"status": "failed"})
        assert "saccade_ready 0" in live.client.get("/metrics").text
        assert "the thread of the engine has ended by an error" in caplog.text
        assert live.post("/v1/completions", model="chat", prompt="a").status_code == 200  # the other model goes on


def test_logits_that_are_not_finite_end_their_request_alone(live):
    engine = live.generator().engine
    expected = live.complete("the cat", max_tokens=40, temperature=0, ignore_eos=True).json()["choices"][0]["text"]
    runner, broken = engine._engine.runner, engine.encode("dog ran")
    forward, rows = runner.forward, set()

    def fail_row(pieces):
        rows.update(piece.row for piece in pieces if list(piece.ids)[: len(broken)] == broken)
        results = forward(pieces)
        failing = [piece.row in rows and piece.start > 8 for piece in pieces]
        return [logits * float("nan") if nan else logits for logits, nan in zip(results, failing, strict=True)]

    connection, response = stream(live, prompt="the cat", max_tokens=40)
    runner.forward = fail_row
    try:
        answer = live.complete("dog ran", n=2, **LONG)
        events = response.read().decode()
    finally:
        del runner.forward
        connection.close()
    assert answer.status_code == 500 and "the logits of the next token must be finite" in answer.text
    text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in events.splitlines() if line[6:7] == "{")
    assert expected.endswith(text) and len(text) > len(expected) // 2
    wait_for(lambda: (live.generator().taken, len(engine)) == (0, 0))


def test_an_error_within_a_stream_is_its_last_event(live, caplog):
    engine = live.generator().engine
    step, count = engine.step, []

    def fail_later():
        count.append(1)
        if len(count) > 5:
            raise ModelFileError("logits must be finite, but are not")
        return step()

    engine.step = fail_later
    try:
        with live.client.stream(
            "POST", "/v1/completions", json={"model": "prose", "prompt": "a", "stream": True, **LONG}
        ) as answer:
            lines = [line for line in answer.iter_lines() if line]
    finally:
        del engine.step
    assert (
        json.loads(lines[-2].removeprefix("data: "))["error"]["code"] == "model_error" and lines[-1] == "data: [DONE]"
    )


def test_lookup_reads_guesses_and_keeps_the_text(live):
    runner, guesses = live.generator().engine._engine.runner, []
    if runner.reuse != 1:
        pytest.skip("guesses are made for the compiled engine, which needs Numba")
    forward = runner.forward

    def watch(pieces):
        guesses.extend(piece for piece in pieces if piece.every)
        return forward(pieces)

    body = {"max_tokens": 60, "temperature": 0, "ignore_eos": True}
    runner.forward = watch
    try:
        plain, guessed = (
            (live.complete("the cat sat. the cat sat. the cat", **body, lookup=lookup).json()["choices"], len(guesses))
            for lookup in (0, 8)
        )
        assert plain[0] == guessed[0] and plain[1] == 0
        assert guesses
    finally:
        del runner.forward


def test_metrics_count_requests_tokens_and_times(runs):
    with serving(runs, ("prose",)) as live:
        live.complete(max_tokens=4, ignore_eos=True)
        live.client.get("/nothing")
        metrics = live.client.get("/metrics")
        assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    for line in (
        'saccade_requests_total{route="/v1/completions",status="200"} 1',
        'saccade_requests_total{route="other",status="404"} 1',
        'saccade_prompt_tokens_total{model="prose"} 7',
        'saccade_completion_tokens_total{model="prose"} 4',
        'saccade_first_token_seconds_count{model="prose"} 1',
        'saccade_request_seconds_bucket{route="/v1/completions",le="+Inf"} 1',
        'saccade_rows{model="prose"} 16',
        "saccade_ready 1",
    ):
        assert line in metrics.text.splitlines(), line


@pytest.fixture
def process(runs):
    """A server in a process of its own, and its address."""
    command = [sys.executable, "-m", "saccade", "serve", "prose", "--runs", str(runs), "--port", "0", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SACCADE_API_KEY": KEY}
    with subprocess.Popen([*command, "--rows", "2"], stderr=subprocess.PIPE, text=True, env=environment) as process:
        line = process.stderr.readline()
        address = re.fullmatch(r"serving prose at (http://127\.0\.0\.1:\d+)\n", line)
        assert address, line + process.stderr.read()
        yield process, address[1]
        if process.poll() is None:
            process.kill()


class HalfRequest:
    """A request that the server has accepted and cannot answer: half of its body was sent."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("http://").partition(":")
        content = json.dumps({"model": "prose", "prompt": "the cat", "stream": True, **LONG}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {KEY}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        self.rest = content[20:]
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.sendall(head.encode() + content[:20])

    def send_rest(self) -> None:
        self.socket.sendall(self.rest)

    def read(self) -> str:
        """Return the whole answer."""
        with self.socket, self.socket.makefile("rb") as file:
            return file.read().decode()


def test_sigterm_lets_requests_finish_refuses_new_ones_and_ends_with_0(process):
    server, address = process
    with httpx.Client(base_url=address, headers={"authorization": f"Bearer {KEY}"}) as client:
        requests = [HalfRequest(address) for _ in range(4)]  # two of them will wait for a row
        wait_for(lambda: "saccade_in_flight 4" in client.get("/metrics").text)
        server.send_signal(signal.SIGTERM)
        wait_for(lambda: client.get("/ready").status_code == 503)
        assert client.get("/ready").json() == {"status": "draining"} and client.get("/health").status_code == 200
        refused = client.post("/v1/completions", json={"model": "prose", "prompt": "a"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert refused.headers["retry-after"] == "5"
    for request in requests:
        request.send_rest()
    texts = [request.read() for request in requests]
    assert all(text.startswith("HTTP/1.1 200 ") and "data: [DONE]" in text for text in texts)
    assert [text.count("data: {") for text in texts] == [400] * 4
    assert server.wait(10) == 0
    assert server.stderr.read() == ""


def test_a_second_signal_ends_at_once(process):
    server, address = process
    with httpx.Client(base_url=address, headers={"authorization": f"Bearer {KEY}"}) as client:
        held = HalfRequest(address)
        wait_for(lambda: "saccade_in_flight 1" in client.get("/metrics").text)
        server.send_signal(signal.SIGTERM)
        wait_for(lambda: client.get("/ready").status_code == 503)
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 128 + signal.SIGTERM
        held.socket.close()


def test_health_is_answered_while_models_are_loaded(runs, monkeypatch):
    from saccade import api
    from saccade.serve.running import Server
    from saccade.serve.settings import Settings, listen

    go, load = threading.Event(), api.load
    monkeypatch.setattr(api, "load", lambda *given, **more: (go.wait(), load(*given, **more))[1])
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        server = Server(Settings(("prose",), root=runs, device="cpu"), port, print, print)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            assert client.get("/health").status_code == 200
            assert (client.get("/ready").status_code, client.get("/ready").json()) == (503, {"status": "loading"})
            early = client.get("/v1/models")
            assert early.status_code == 503 and "the models are being loaded" in early.json()["error"]["message"]
            go.set()
            wait_for(lambda: client.get("/ready").status_code == 200, 300)
        server.should_exit = True
        thread.join(20)
