"""Requests that are refused: each with its status, parameter, value and rule, in the form of OpenAI's errors."""

import json
import time

import pytest

from saccade.serve import limits, requests
from saccade.serve.bodies import parse_json
from saccade.serve.errors import ApiError
from saccade.serve.requests import TEXTS_RULE, ChatBody, CompletionBody, EmbeddingsBody, TaskBody

PROSE = {"model": "prose", "prompt": "a"}
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "a"}]}
LONG_STOP = "x" * (limits.STOP_LENGTH + 1)

COMPLETIONS = [
    ({"temperature": -1}, "temperature", "temperature must be greater than or equal to 0, but is -1"),
    ({"temperature": "1"}, "temperature", "temperature must be a number, but is '1'"),
    ({"temperature": True}, "temperature", "temperature must be a number, but is True"),
    ({"top_p": 1.1}, "top_p", "top_p must be less than or equal to 1, but is 1.1"),
    ({"n": 0}, "n", "n must be greater than or equal to 1, but is 0"),
    ({"n": 33}, "n", "n must be less than or equal to 32, but is 33"),
    ({"n": 13}, "n", "a request must have at most 12 texts, which is all that this server holds at once, but has 13"),
    ({"max_tokens": -1}, "max_tokens", "max_tokens must be greater than or equal to 0, but is -1"),
    ({"max_tokens": 99999}, "max_tokens", "max_tokens must be less than or equal to 16384, but is 99999"),
    ({"max_tokens": 1.5}, "max_tokens", "max_tokens must be a whole number, but is 1.5"),
    (
        {"stop": ["a"] * 5},
        "stop",
        "stop must be a string or a list of at most 4 strings of 1 to 256 characters, but is a list of 5",
    ),
    ({"stop": ""}, "stop", "stop must be a string or a list of at most 4 strings of 1 to 256 characters, but is ''"),
    (
        {"stop": LONG_STOP},
        "stop",
        "stop must be a string or a list of at most 4 strings of 1 to 256 characters, but is 'xxx",
    ),
    ({"logprobs": 21}, "logprobs", "logprobs must be less than or equal to 20, but is 21"),
    ({"seed": 1.5}, "seed", "seed must be a whole number, but is 1.5"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "logit_bias must be an object of at most 1,024 tokens, as digits"),
    ({"logit_bias": {"1": 101}}, "logit_bias", "with numbers from -100 to 100"),
    ({"logit_bias": {"999": 1}}, None, "a token must be from 0 to 17, but one of the request is not"),
    (
        {"prompt": []},
        "prompt",
        "prompt must be a string, a list of strings, a list of tokens or a list of lists of tokens",
    ),
    ({"prompt": [[]]}, "prompt", "a prompt must have at least one token, but one is empty"),
    ({"prompt": [1, "a"]}, "prompt", "prompt must be a string, a list of strings"),
    ({"prompt": [99]}, None, "a token must be from 0 to 17, but one of the request is not"),
    ({"prompt": [-1]}, "prompt", "prompt must be a string, a list of strings"),
    ({"prompt": ["a"] * 65}, "prompt", "prompt must have at most 64 prompts, but has 65"),
    (
        {"prompt": "a" * 512},
        "prompt",
        "a prompt must have fewer tokens than the context of 512, but has 512; shorten it",
    ),
    ({"best_of": 2}, "best_of", "best_of must be equal to n, which is 1, but is 2; texts are not ranked"),
    ({"suffix": "x"}, "suffix", "suffix is not supported by this server, but is 'x'; it may be ''"),
    ({"echo": True, "logprobs": 1}, "echo", "echo cannot be combined with logprobs"),
    ({"echo": True, "prompt": [1, 2]}, "echo", "echo needs prompts that are texts, but they are tokens"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "stream_options needs stream, but it is not true"),
    ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "no parameter 'stream_options.x'"),
    ({"store": True}, "store", "store is not supported by this server, but is True; it may be False"),
    ({"temprature": 1}, "temprature", "no parameter 'temprature'; did you mean 'temperature'?"),
    (
        {"model": "sentence_vectors"},
        "model",
        "'sentence_vectors' does not continue texts; it is a model for sentence_vectors: use /v1/tasks/sentence",
    ),
    ({"model": 5}, "model", "model must be a string, but is 5"),
    ({"min_p": 1}, "min_p", "min_p must be less than 1, but is 1"),
    ({"lookup": 65}, "lookup", "lookup must be less than or equal to 64, but is 65"),
]
CHATS = [
    ({"messages": []}, "messages", "messages must be"),
    (
        {"messages": [{"role": "tool", "content": "a"}]},
        "messages[0].role",
        "messages[0].role must be 'system', 'developer', 'user' or 'assistant', but is 'tool'",
    ),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "messages[0].content must be given, but is not"),
    (
        {"messages": [{"role": "user", "content": None}]},
        "messages[0].content",
        "messages[0].content must be a string or a list of text parts, but is None",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content[0]",
        "of type 'image_url'",
    ),
    (
        {"messages": [{"role": "user", "content": "a", "name": "n"}]},
        "messages[0].name",
        "messages[0].name is not supported by this server, but is 'n'; leave it out",
    ),
    ({"messages": [{"role": "user", "content": "a"}] * 1025}, "messages", "messages must"),
    ({"messages": [{"role": "user", "content": "a" * 200}]}, "messages", "than the context of 128, but has 2"),
    ({"top_logprobs": 2}, "top_logprobs", "top_logprobs needs logprobs, but it is not true"),
    (
        {"logprobs": True, "top_logprobs": 21},
        "top_logprobs",
        "top_logprobs must be less than or equal to 20, but is 21",
    ),
    ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens", "both are given; leave one out"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, None, "response_format"),
    (
        {"tool_choice": "auto"},
        "tool_choice",
        "tool_choice is not supported by this server, but is 'auto'; it may be 'none'",
    ),
    ({"modalities": ["text", "audio"]}, "modalities", "modalities is not supported by this server"),
    ({"audio": {"voice": "x"}}, "audio", "audio is not supported by this server, but is an object of 1; leave it out"),
    ({"reasoning_effort": "low"}, "reasoning_effort", "reasoning_effort is not supported by this server, but is 'low'"),
    ({"model": "prose"}, "messages", "template"),
]
EMBEDDINGS = [
    ({"input": ""}, "input", "input must hold text, but text 0 is ''"),
    ({"input": [1, 2]}, "input", "input must be a text or a list of texts, but has tokens; send the texts"),
    ({"input": ["a"] * 65}, "input", "input must have at most 64 texts, but has 65; send several requests"),
    ({"input": "the cat " * 2000}, "input", "shorten it"),
    ({"input": "a", "dimensions": 7}, "dimensions", "dimensions must be 32, the size of the model's vectors, but is 7"),
    (
        {"input": "a", "encoding_format": "x"},
        "encoding_format",
        "encoding_format must be 'float' or 'base64', but is 'x'",
    ),
    (
        {"input": "a", "model": "prose"},
        "model",
        "'prose' gives no vectors; it is a model for language_model: use /v1/tasks/prose",
    ),
    ({}, "input", "input must be given, but is not"),
]
TASKS = [
    ({}, "inputs", "inputs must be given, but is not"),
    ({"inputs": {}}, "inputs.source", "source must be given, but is not; this model takes source"),
    ({"inputs": {"source": 5}}, "inputs.source", "source must be a text, but is 5"),
    ({"inputs": {"source": "  "}}, "inputs.source", "source must hold text"),
    ({"inputs": {"sorce": "a"}}, "inputs.sorce", "no input 'sorce'; did you mean 'source'?"),
    ({"inputs": []}, "inputs", "inputs must be an object of inputs, or a list of such objects, but is a list of 0"),
    ({"inputs": {"source": "a"}, "options": {"beem": 2}}, "options.beem", "no option 'beem'; did you mean 'beam'?"),
    (
        {"inputs": {"source": "a"}, "options": {"beam": 65}},
        "options.beam",
        "beam must be at most 64 on this server, but is 65",
    ),
    (
        {"inputs": {"source": "a"}, "options": {"beam": "999"}},
        "options.beam",
        "beam must be at most 64 on this server, but is 999",
    ),
    ({"inputs": {"source": "a"}, "options": {"beam": "x"}}, None, "beam must be a whole number, but is 'x'"),
    ({"inputs": {"source": "a"}, "attention": "yes"}, "attention", "attention must be true or false, but is 'yes'"),
    ({"inputs": {"source": "the cat " * 5000}}, "inputs.source", "tokens, but has"),
]
CASES = [
    *(("/v1/completions", {**PROSE, **change}, *expected) for change, *expected in COMPLETIONS),
    *(("/v1/chat/completions", {**CHAT, **change}, *expected) for change, *expected in CHATS),
    *(("/v1/embeddings", {"model": "sentence_vectors", **change}, *expected) for change, *expected in EMBEDDINGS),
    *(("/v1/tasks/translation", change, *expected) for change, *expected in TASKS),
]


@pytest.mark.parametrize(
    ("path", "body", "param", "message"), CASES, ids=[f"{path}-{at}" for at, (path, *_) in enumerate(CASES)]
)
def test_a_mistake_is_named_with_its_value_and_rule(live, path, body, param, message):
    answer = live.client.post(path, json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400, answer.text
    assert message in error["message"] and error["type"] == "invalid_request_error" and error["code"]
    if param is not None:
        assert error["param"] == param


def test_an_option_that_is_a_text_has_the_same_limit(live):
    answer = live.post("/v1/tasks/prose", inputs={"prompt": "a"}, options={"max_new_tokens": "1000000000"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "options.max_new_tokens")
    message = answer.json()["error"]["message"]
    assert message == "max_new_tokens must be at most 4,096 on this server, but is 1,000,000,000"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value"),
        (b"{", "the body must be valid JSON"),
        (b"[]", "it must be an object, but is list"),
        (b"null", "it must be an object, but is NoneType"),
        (b'{"model": "prose", "model": "chat"}', "the key 'model' is there twice"),
        (b'{"temperature": NaN}', "JSON has no NaN"),
        (b'{"temperature": -Infinity}', "JSON has no -Infinity"),
        (b'{"temperature": 1e999}', "the number 1e999 is too large"),
        (b'{"seed": 99999999999999999999999}', "does not fit 64 bits"),
        (b'{"seed": ' + b"9" * 10_000 + b"}", "does not fit 64 bits"),
        (b'{"prompt": "\\ud800"}', "a text has the lone surrogate U+D800; remove it"),
        (b'{"\\udfff": 1}', "a text has the lone surrogate U+DFFF; remove it"),
        (b'{"prompt": "\xff"}', "can't decode byte 0xff"),
        (b"[" * 100_000, "it may be nested 32 deep, but is deeper"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "it may be nested 32 deep, but is deeper"),
        ("\ufeff{}".encode(), "BOM"),
        (json.dumps({"a": 1}).encode("utf-16"), "the body must be valid JSON"),
        (b'"' + b'\\"' * 1_000_000, "the body must be valid JSON"),
    ],
    ids=range(18),
)
def test_a_body_that_is_not_strict_json_is_refused(live, content, message):
    answer = live.client.post("/v1/completions", content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "kind", ["text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_another_type_of_body_is_refused(live, kind):
    answer = live.client.post("/v1/completions", content=json.dumps(PROSE), headers={"content-type": kind})
    assert (
        answer.status_code == 415
        and "content-type must be application/json, but is" in answer.json()["error"]["message"]
    )


def test_a_compressed_body_is_refused(live):
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert live.client.post("/v1/completions", content=b"x", headers=headers).status_code == 415


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_refused(live, chunked):
    size = limits.TEXT_BODY + 10
    content = (b" " * (size // 10) for _ in range(11)) if chunked else b" " * size
    answer = live.client.post("/v1/completions", content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    shown = "more than 4,194,304" if chunked else f"{size}"
    assert f"a body must have at most 4,194,304 bytes, but has {shown}" in answer.json()["error"]["message"]


def test_all_bodies_together_have_bounded_memory(live, monkeypatch):
    monkeypatch.setattr(limits, "ALL_BODIES", 10)
    answer = live.complete()
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    monkeypatch.undo()
    assert live.complete().status_code == 200 and live.state.bodies.held == 0


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models/prose", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v2", 404, "not_found"),
        ("POST", "/v1/tasks/none", 404, "model_not_found"),
        ("GET", "/v1/tasks/none", 404, "model_not_found"),
    ],
)
def test_addresses_and_methods(live, method, path, status, code):
    answer = live.client.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert ("allow" in answer.headers) is (status == 405)


@pytest.mark.parametrize("prompt", ["a\0b", "\u202e", "\N{GRINNING FACE}", "\r\n"])
def test_characters_that_a_model_does_not_know_are_refused(live, prompt):
    answer = live.complete(prompt, max_tokens=2)
    assert answer.status_code == 400 and "character" in answer.json()["error"]["message"]


def test_a_body_that_never_ends_is_given_up(live, monkeypatch):
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.1)

    def slow():
        yield b"{"
        time.sleep(0.4)
        yield b"}"

    answer = live.client.post("/v1/completions", content=slow(), headers={"content-type": "application/json"})
    assert answer.status_code == 408 and "within 0.1 s" in answer.json()["error"]["message"]


def test_a_repeated_key_among_many_is_found_in_one_pass():
    body = json.dumps({str(at): 0 for at in range(50_000)})
    start = time.thread_time()  # other programs do not count
    with pytest.raises(ApiError, match="the key '49999' is there twice"):
        parse_json(f'{body[:-1]}, "49999": 1}}'.encode())
    assert time.thread_time() - start < 5  # one pass: a tenth of a second; quadratic: half a minute


def test_the_number_of_values_of_a_body_is_bounded(live):
    content = b'{"model": "prose", "prompt": [' + b"{}," * limits.VALUES + b"1]}"
    answer = live.client.post("/v1/completions", content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
    assert "it may have 262,144 values, but has more" in answer.json()["error"]["message"]
    commas = json.dumps({"text": "," * (limits.VALUES + 1)})
    assert parse_json(commas.encode()) == json.loads(commas)


MANY = 100_000
ONES = {str(at): 1 for at in range(MANY)}
PARTS = [{"role": "user", "content": [{"type": "text"}] * 1024}] * 60


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (CompletionBody, {**PROSE, "prompt": [None] * MANY}, f"{TEXTS_RULE}, but is a list of 100,000"),
        (CompletionBody, {**PROSE, "prompt": [[None] * MANY] * 2}, f"{TEXTS_RULE}, but is a list of 2"),
        (EmbeddingsBody, {"model": "a", "input": [None] * MANY}, f"{TEXTS_RULE}, but is a list of 100,000"),
        (CompletionBody, {**PROSE, "metadata": ONES}, "metadata must be an object of at most 16 strings, but is an"),
        (
            CompletionBody,
            {**PROSE, "metadata": {"a": 1}},
            "metadata must be an object of at most 16 strings, but is an",
        ),
        (CompletionBody, {**PROSE, "logit_bias": ONES}, "logit_bias must be an object of at most 1,024 tokens"),
        (CompletionBody, {**PROSE, "stop": [1] * MANY}, "stop must be a string or a list of at most 4 strings"),
        (CompletionBody, {**PROSE, **ONES}, "no parameter '0'"),
        (ChatBody, {**CHAT, "stream_options": ONES}, "no parameter 'stream_options.0'"),
        (ChatBody, {**CHAT, "response_format": {"type": "text", **ONES}}, "no parameter 'response_format.0'"),
        (ChatBody, {**CHAT, "messages": [{**CHAT["messages"][0], **ONES}]}, "no parameter 'messages[0].0'"),
        (ChatBody, {**CHAT, "messages": [{}] * MANY}, "messages[0].role must be given, but is not"),
        (ChatBody, {**CHAT, "messages": PARTS}, "messages[0].content must be a string or a list of text parts"),
        (
            ChatBody,
            {**CHAT, "messages": [{"role": "user", "content": [{"type": "text", "text": "a", **ONES}]}]},
            "no parameter 'messages[0].content[0].0'",
        ),
        (TaskBody, {"inputs": [1] * MANY}, "inputs must be an object of inputs, or a list of such objects"),
        (TaskBody, {"inputs": {}, **ONES}, "no parameter '0'"),
    ],
    ids=range(16),
)
def test_many_mistakes_cost_as_little_as_one(monkeypatch, kind, values, message):
    counts = []
    refusal = requests._refusal
    monkeypatch.setattr(requests, "_refusal", lambda *given: counts.append(len(given[1])) or refusal(*given))
    with pytest.raises(ApiError) as caught:
        requests.check(kind, values)
    assert message in str(caught.value) and all(count <= 20 for count in counts)
