"""Hostile requests to a running studio: valid ones of every address, mutated; none may end in an error of the server.

python tests/reliability/hostile_requests.py --count 3000

Printed: how many answers there were of each class of status, the slowest, and the failures: an error of the server, a
redirect elsewhere, JSON with NaN, an answer without the content security policy, or a studio that answers no more.
"""

import argparse
import json
import os
import random
import re
import string
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.reliability.figures import Figure, print_figure
from tests.reliability.live_studio import Answer, Studio, start_studio, train_runs

CLIENTS = 4  # at once; fewer than the studio computes for
SLOWEST = 20.0  # seconds of one answer
DEEP, LONG = 3000, 1 << 16
SURROGATE = "\ud800"


@dataclass(frozen=True)
class Request:
    """A request before it becomes bytes; a value of the query may be given several times."""

    method: str
    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    extra: tuple[bytes, ...] = ()
    """lines after the headers"""
    raw: bytes | None = None
    """body that replaces the JSON of `body`"""
    complete: bool = True
    """whether all announced bytes are sent"""

    def encode(self, studio: Studio) -> bytes:
        content = self.raw
        if content is None and self.body is not None:
            content = json.dumps(self.body).encode("utf-8", "surrogatepass")
        headers = {**studio.headers(content), **self.headers}
        target = self.path + ("?" + "&".join(f"{name}={value}" for name, value in self.query) if self.query else "")
        lines = [f"{self.method} {target} HTTP/1.1".encode("utf-8", "surrogateescape")]
        lines += [f"{name}: {value}".encode("utf-8", "surrogateescape") for name, value in headers.items() if value]
        return b"\r\n".join([*lines, *self.extra, b"", b""]) + (content or b"")


@dataclass(frozen=True)
class Known:
    """What a client knows of a studio: its key, its models with their forms, and a prediction of each."""

    key: str
    models: dict[str, Any]
    looks: dict[str, Any]
    generations: dict[str, str]
    """ids of continuations, by model"""

    @classmethod
    def of(cls, studio: Studio) -> "Known":
        names = studio.request("/look.json").json()["models"]
        forms = {name: studio.form(name) for name in names}
        looks, generations = {}, {}
        for name, form in forms.items():
            body = {"model": name, "inputs": form["examples"][0], "options": {}}
            if any(option["name"] == "max_new_tokens" for option in form["options"]):
                body["options"] = {"max_new_tokens": 4}
            answer = studio.request("/api/look", body)
            assert answer.status == 200, answer.body
            looks[name] = answer.json()
            if form["generates"]:
                lines = studio.request("/api/generate", body).body.splitlines()
                generations[name] = json.loads(lines[0])["id"]
        return cls(studio.key, forms, looks, generations)


def valid(rng: random.Random, known: Known) -> Request:
    """Return a request that a page might send, to any of the addresses."""
    name = rng.choice(list(known.models))
    makers = [_page, _entrance, _run, _form, _predict, _predict, _generate, _inspect, _inspect, _cells, _cells, _effect]
    makers += [_progress, _compare, _steer]
    return rng.choice(makers)(rng, known, name)


def _entrance(rng: random.Random, known: Known, name: str) -> Request:
    """A request with the key, which leads elsewhere."""
    path = rng.choice(["/", "/runs", "//evil.example/", "/\\evil.example", "/%2F%2Fevil.example/%2e%2e", "/%09//evil"])
    return Request("GET", path, [("a", "b"), ("key", known.key if rng.random() < 0.8 else "x")])


def _page(rng: random.Random, known: Known, name: str) -> Request:
    pages = ["/", "/runs", "/look", "/compare", "/generate", "/try", "/samples", "/steps", "/flow", "/lessons"]
    page = rng.choice([*pages, f"/watch/{quote(name)}", "/static/look.js"])
    twin = ".json" if rng.random() < 0.5 and not page.startswith(("/static", "/?")) and page != "/" else ""
    return Request("GET", page + twin, [("model", quote(name))] if rng.random() < 0.5 else [])


def _run(rng: random.Random, known: Known, name: str) -> Request:
    if rng.random() < 0.4:  # never `resume` of a run that exists: it would train
        return Request("POST", f"/api/runs/{rng.choice(['nothing', '..', quote(name)])}/stop", body={})
    return Request("GET", f"/api/runs/{quote(name)}" + rng.choice(["", "/attention/2", "/attention/1"]))


def _form(rng: random.Random, known: Known, name: str) -> Request:
    return Request("GET", f"/api/models/{quote(name, safe='')}/form")


def _predict(rng: random.Random, known: Known, name: str) -> Request:
    form = known.models[name]
    options = {option["name"]: option["default"] for option in form["options"] if rng.random() < 0.4}
    if any(option["name"] == "max_new_tokens" for option in form["options"]):
        options["max_new_tokens"] = rng.randrange(6)
    body = {"model": name, "inputs": dict(form["examples"][0]), "options": options}
    more = {"generate": rng.random() < 0.5, "ticket": rng.choice("abc")} if rng.random() < 0.5 else {}
    return Request("POST", "/api/look", body={**body, **more})


def _compare(rng: random.Random, known: Known, name: str) -> Request:
    """A part of the comparison of two predictions, or the checkpoints of a model."""
    if rng.random() < 0.2:
        return Request("GET", f"/api/models/{quote(name, safe='')}/checkpoints")
    first, second = (known.looks[rng.choice(list(known.looks))] for _ in range(2))
    part = rng.choice(["maps", "axes", "cells", "changes"])
    names = [look["maps"][0]["name"] if look["maps"] else "x" for look in (first, second)]
    head = ("head", rng.choice(["0", "1", "mean"]))
    params = [("map", quote(names[0])), ("other", quote(names[1])), head, ("words", rng.choice("01"))]
    params += [("top", "0"), ("bottom", "2"), ("left", "0"), ("right", "2"), ("count", str(rng.randrange(10)))]
    return Request("GET", f"/api/compare/{first['id']}/{second['id']}/{part}", params)


def _progress(rng: random.Random, known: Known, name: str) -> Request:
    return Request("GET", f"/api/progress/{rng.choice('abcd')}")


def _generate(rng: random.Random, known: Known, name: str) -> Request:
    request = _predict(rng, known, name)
    return replace(request, path="/api/generate", body={**request.body, "map": known.looks[name]["maps"][0]["name"]})


def _steer(rng: random.Random, known: Known, name: str) -> Request:
    id = known.generations.get(name, "none")
    attention, numbers = known.looks[name]["maps"][0]["name"], [rng.randrange(6) for _ in range(4)]
    bodies = {
        "": {"options": {"temperature": numbers[0]}, "map": attention, "head": numbers[1], "stop": True},
        "/rows": {"map": attention, "head": numbers[1] - 1, "first": numbers[2], "last": numbers[3]},
        "/distribution": {"step": numbers[0], "options": {"top_k": numbers[1]}},
    }
    part = rng.choice(list(bodies))
    if rng.random() < 0.3:
        request = _generate(rng, known, name)
        return replace(request, body={**request.body, "parent": id, "keep": numbers[0], "token": numbers[1]})
    return Request("POST", f"/api/generations/{id}{part}", body=bodies[part])


def _inspect(rng: random.Random, known: Known, name: str) -> Request:
    look = known.looks[name]
    attention = rng.choice(look["maps"])
    parts = ["overview", "heads", "gallery", "statistics", "logit-lens", "importance", "attribution", "calculation"]
    parts += ["flow"]
    parts += ["export.svg", "export.png", "export.html", "export.json"]
    part = rng.choice(["", *(f"/{part}" for part in parts)])
    query = [("map", attention["name"]), ("head", str(rng.randrange(3))), ("query", str(rng.randrange(6)))]
    query += [
        ("key", str(rng.randrange(6))),
        ("position", str(rng.randrange(3))),
        ("method", rng.choice(["gradient", "integrated"])),
        ("words", "1"),
        ("sqrt", "1"),
    ]
    return Request("GET", f"/api/look/{look['id']}{part}", rng.sample(query, rng.randrange(len(query) + 1)))


def _cells(rng: random.Random, known: Known, name: str) -> Request:
    look = known.looks[name]
    attention = rng.choice(look["maps"])
    numbers = {"top": 0, "bottom": 3, "left": 0, "right": 3, "down": 1, "across": 1, "words": rng.randrange(2)}
    query = [("map", attention["name"]), ("head", rng.choice(["mean", "0", "all"]))]
    query += [(key, str(value)) for key, value in numbers.items()]
    return Request("GET", f"/api/look/{look['id']}/cells", query)


def _effect(rng: random.Random, known: Known, name: str) -> Request:
    look = known.looks[name]
    ablation = {"map": rng.choice(look["maps"])["name"], "head": 0, "query": rng.choice([0, None]), "key": 0}
    return Request("POST", f"/api/look/{look['id']}/effect", body={"ablations": [ablation]})


# Odd values, for a query, a path or JSON.

NUMBERS = ["0", "-1", "1", "2.5", "1e9", "999999999", "9999999999", "9" * 5000, "NaN", "Infinity", "0x10", "٣", "1_0"]
TEXTS = ["", " ", "null", "true", "[]", "{}", "..", "../../etc/passwd", "/etc/hostname", "a/b", "\u202e", "\x00", "é"]
TEXTS += ["<script>", "' OR 1=1", "${x}", "{{x}}", "%s", "\r\nX: y", "\u200b", "\N{GRINNING FACE}"]
TEXTS += ["[MASK]" * 50, "a" * LONG, "the cat " * 2000]
ESCAPES = ["%00", "%ff", "%ED%A0%80", "%C0%AF", "%2e%2e%2f", "%252e", "%5c", "%0d%0aX:%20y", "%", "%zz", "%E2%80%AE"]


def odd_text(rng: random.Random, before: str = "") -> str:
    """Return a part of an address; instead of a number mostly another one."""
    if before.isdecimal() and rng.random() < 0.7:
        return quote(rng.choice(["0", "0", "1", "7", *NUMBERS]))
    if rng.random() < 0.3:
        return rng.choice(ESCAPES)
    value = rng.choice(NUMBERS + TEXTS)
    return quote(value, safe="/.") if rng.random() < 0.9 else re.sub(r"[\s\x00]", "", value)


def odd_json(rng: random.Random) -> Any:
    """Return a value of JSON."""
    values: list[Callable[[], Any]] = [
        lambda: rng.choice([None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 0.5, -2.5, 1e308]),
        lambda: rng.choice([float("nan"), float("inf"), float("-inf"), "", [], {}, [[]], {"": ""}]),
        lambda: rng.choice(NUMBERS + TEXTS),
        *[lambda: rng.choice(["", " ", "\n", SURROGATE, "the " + SURROGATE + " cat"])] * 3,
        lambda: "data:image/png;base64," + "A" * rng.choice([3, LONG]),
        lambda: "the cat sat " * rng.choice([100, 10_000]),
        lambda: [odd_json(rng) for _ in range(3)],
        lambda: {rng.choice(["a", "map", "head", "text", ""]): odd_json(rng)},
        lambda: "".join(rng.choices(string.printable + "äß中\u0301\ud83d", k=50)),
        lambda: list(range(2000)),
    ]
    return rng.choice(values)()


def _replaced(rng: random.Random, value: Any) -> Any:
    """Return JSON with one of its values, at any depth, replaced, removed or added to."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        action = rng.random()
        if action < 0.1:
            return {name: entry for name, entry in value.items() if name != key}
        if action < 0.2:
            return {**value, rng.choice(["x", "attention", "", "model", SURROGATE]): odd_json(rng)}
        return {**value, key: _replaced(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.6:
        at = rng.randrange(len(value))
        return [*value[:at], _replaced(rng, value[at]), *value[at + 1 :]]
    return odd_json(rng)


# Mutations: each takes a request and returns another.


def mutate_query(rng: random.Random, request: Request) -> Request:
    query = list(request.query) or [("a", "b")]
    at = rng.randrange(len(query))
    action = rng.random()
    if action < 0.15:
        del query[at]
    elif action < 0.3:
        query.insert(at, (query[at][0], odd_text(rng, query[at][1])))
    elif action < 0.35:
        query += [("a", "b")] * 500
    elif action < 0.4:
        query[at] = (odd_text(rng), query[at][1])
    else:
        query[at] = (query[at][0], odd_text(rng, query[at][1]))
    return replace(request, query=query)


def mutate_path(rng: random.Random, request: Request) -> Request:
    parts = request.path.split("/")
    at = rng.randrange(len(parts))
    choices = [
        lambda: "/" + request.path,
        lambda: request.path + "/",
        lambda: "http://evil.example" + request.path,
        lambda: "//evil.example" + request.path,
        lambda: "/\\evil.example" + request.path,
        lambda: "*",
        lambda: request.path.replace("/", "//"),
        lambda: request.path.replace("/", "\\"),
        lambda: request.path.upper(),
        lambda: request.path + ";a=b",
        lambda: request.path + "?" + "a" * LONG,
        *[lambda: "/".join([*parts[:at], odd_text(rng), *parts[at + 1 :]])] * 8,
    ]
    return replace(request, path=rng.choice(choices)() or "/")


def mutate_method(rng: random.Random, request: Request) -> Request:
    names = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO", "get", "G\x00T"]
    return replace(request, method=rng.choice(names))


HEADERS: dict[str, list[str]] = {
    "Host": ["", "evil.example", "127.0.0.1", "localhost:1", "127.0.0.1:99999999", "[::1]:80", "a b", "\udcff", "@a"],
    "Cookie": ["", "saccade=x", "a=b; c", "=", ";;;", "saccade-1=\udcff", "x=" + "y" * LONG],
    "Origin": ["http://evil.example", "null", "http://127.0.0.1", "file://"],
    "Sec-Fetch-Site": ["cross-site", "same-site", "none", "", "SAME-ORIGIN", "x"],
    "Content-Type": ["", "text/plain", "application/json; charset=utf-16", "multipart/form-data", "APPLICATION/JSON"],
    "Content-Length": ["", "-1", "0", "1", "5", "99999999", "9" * 30, "1e3", "+5", "5, 5"],
    "Transfer-Encoding": ["chunked", "gzip", "identity", "chunked, chunked"],
    "Range": ["bytes=0-", "bytes=5-1", "bytes=" + "9" * 5000 + "-", "bytes=" + "0-1," * 200, "x", "bytes=-"],
    "If-Modified-Since": ["x", "1 2 3", "Sun, 99 Nov 99999 99:99:99", "\udcff", ","],
    "If-None-Match": ["*", '"x"', "\udcff"],
    "Expect": ["100-continue", "x"],
    "Upgrade": ["websocket", "h2c"],
    "Connection": ["upgrade", "keep-alive", "close, close", "x"],
    "Accept-Encoding": ["gzip, br", "\udcff"],
    "Accept": ["text/event-stream", "x"],
    "X-Forwarded-Host": ["evil.example"],
    "X": ["a" * (4 * LONG)],
}
LINES = [b"no colon", b": empty", b" folded", b"A B: c", b"X: \x00", b"X: \xff\xfe"]
LINES += [b"Host: evil.example", b"Content-Length: 3"]


def mutate_headers(rng: random.Random, request: Request) -> Request:
    if rng.random() < 0.2:
        line = rng.choice(LINES)
        complete = request.complete and not line.startswith(b"Content-Length")
        return replace(request, extra=(*request.extra, line), complete=complete)
    name = rng.choice(list(HEADERS))
    changed = replace(request, headers={**request.headers, name: rng.choice(HEADERS[name])})
    return replace(changed, complete=request.complete and name not in ("Content-Length", "Transfer-Encoding"))


def mutate_body(rng: random.Random, request: Request) -> Request:
    body = request.body if request.body is not None else {}
    changed = replace(request, method="POST", body=_replaced(rng, body))
    if rng.random() < 0.75:
        return changed
    content = json.dumps(changed.body).encode("utf-8", "surrogatepass")
    raws: list[Callable[[], bytes]] = [
        lambda: b"",
        lambda: content[: rng.randrange(len(content) + 1)],
        lambda: content + b"x",
        lambda: content.decode("utf-8", "replace").encode("utf-16"),
        lambda: b"\xff" + content,
        lambda: b"[" * DEEP + b"]" * DEEP,
        lambda: b'{"model":' * DEEP + b"1" + b"}" * DEEP,
        lambda: b'{"model": "x", "inputs": ' + b"[" * 900 + b"]" * 900 + b"}",
        lambda: b'{"model": "x", "options": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}",
        lambda: b'{"model": ' + b"9" * 6000 + b"}",
        lambda: b'{"model": "a", "model": "b"}',
        lambda: b'{"model": "' + b"a" * (2 << 20) + b'"}',
        lambda: b"<xml/>",
        lambda: b"a=b&c=d",
    ]
    return replace(changed, raw=rng.choice(raws)())


MUTATIONS = [mutate_query, mutate_path, mutate_method, mutate_headers, mutate_headers, mutate_body, mutate_body]


def hostile(seed: int, known: Known) -> Iterator[Request]:
    """Yield requests for ever: valid ones with up to three mutations."""
    rng = random.Random(seed)
    while True:
        request = valid(rng, known)
        for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3])):
            request = rng.choice(MUTATIONS)(rng, request)
        yield request


def failure(answer: Answer) -> str:
    """Return what is wrong with an answer; empty: nothing."""
    if answer.status >= 500:
        return f"status {answer.status}: {answer.body[:200]!r}"
    if answer.seconds > SLOWEST:
        return f"took {answer.seconds:.1f} s"
    location = answer.headers.get("location", "/")
    if not re.match(r"/(?![/\\])", location):
        return f"redirects to {location}"
    protocol = answer.status in (0, 400) and answer.body in (b"", b"Invalid HTTP request received.")
    if not protocol and "default-src 'self'" not in answer.headers.get("content-security-policy", ""):
        return f"status {answer.status} without a content security policy"
    if answer.headers.get("content-type", "").startswith(("application/json", "application/x-ndjson")):
        for line in answer.body.splitlines():
            try:
                json.loads(line, parse_constant=_not_json)
            except ValueError as error:
                return f"not strict JSON: {error}: {line[:80]!r}"
    return ""


def _not_json(name: str) -> float:
    raise ValueError(f"JSON has no {name}")


def attack(studio: Studio, count: int, seed: int) -> tuple[Counter[str], float, list[str]]:
    """Send hostile requests; return the answers of each class, the seconds of the slowest, and the failures."""
    known = Known.of(studio)
    requests = hostile(seed, known)
    sent = [next(requests) for _ in range(count)]

    def send(request: Request) -> Answer:
        return studio.send(request.encode(studio), complete=request.complete)

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(send, sent))
    classes = Counter(f"{answer.status // 100}xx" if answer.status else "closed" for answer in answers)
    failures = [
        f"{failure(answer)}: {request.encode(studio)[:300]!r}"
        for request, answer in zip(sent, answers, strict=True)
        if failure(answer)
    ]
    failures += [
        f"the studio no longer answers {path}" for path in ("/runs", "/runs.json") if studio.request(path).status != 200
    ]
    return classes, max(answer.seconds for answer in answers), failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="saccade-hostile-", ignore_cleanup_errors=True) as folder:
        os.environ["SACCADE_CACHE"] = str(Path(folder) / "cache")
        studio = start_studio(train_runs(Path(folder)))
        classes, slowest, failures = attack(studio, chosen.count, chosen.seed)
    print(*failures, sep="\n", end="\n" if failures else "", file=sys.stderr)
    figures = ", ".join(f"{name} {classes.get(name, 0):,}" for name in ("2xx", "3xx", "4xx", "5xx", "closed"))
    text = f"hostile requests: {figures}; slowest {slowest:.1f} s; {len(failures)} failures"
    good = chosen.count - min(chosen.count, len(failures))
    return print_figure(Figure("studio requests", good, chosen.count, text, dict(classes)), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
