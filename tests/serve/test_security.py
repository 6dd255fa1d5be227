"""Who may send requests: keys, host names, sites; the files of the server stay closed."""

import base64
import http.client
import itertools
from pathlib import Path

import pytest
from click.testing import CliRunner

from saccade.cli import main
from saccade.core.fields import Audio, Graph, Image, Text, Vector, World
from saccade.errors import UsageError
from saccade.serve.errors import ApiError
from saccade.serve.inputs import safe_value
from saccade.serve.security import HEADERS, PUBLIC
from saccade.serve.settings import check_origins, is_loopback, read_keys
from tests.serve.live import KEY, serving

EVIL = ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "localhost.evil.example:{port}"]
HOSTS = [
    *EVIL,
    *(
        "127.0.0.1",
        "localhost",
        "127.0.0.1:1",
        "localhost:99999",
        "0.0.0.0:{port}",
        "127.1:{port}",
        "2130706433:{port}",
    ),
    *("[::]:{port}", "[::ffff:127.0.0.1]:{port}", "127.0.0.1:{port}@evil.example", "evil.example@127.0.0.1:{port}"),
    *("127.0.0.1:{port}.", "localhost.:{port}", "127.0.0.1:{port}/x", "127.0.0.1:{port} ,evil", "", "\x7f"),
]
ORIGINS = [
    *("http://evil.example", "https://evil.example", "http://127.0.0.1", "http://localhost:1", "null", "file://", ""),
    *("http://127.0.0.1:{port}.evil.example", "http://evil.example:{port}", "http://127.0.0.1:{port}/", "data:", "*"),
    *("chrome-extension://abc", "http://user@127.0.0.1:{port}", "ftp://127.0.0.1:{port}", "127.0.0.1:{port}"),
]
SITES = ["cross-site", "same-site", "CROSS-SITE", "x", "same-origin, cross-site", "Same-Origin"]
CASES = [
    *({"host": host} for host in HOSTS),
    *({"origin": origin} for origin in ORIGINS),
    *({"sec-fetch-site": site} for site in SITES),
    *(
        {"origin": o, "sec-fetch-site": s}
        for o, s in itertools.product(ORIGINS[:6], ("same-origin", "none", "cross-site"))
    ),
    *({"host": host, "origin": f"http://{host}"} for host in HOSTS[:8]),
    *({"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"} for host in HOSTS[:8]),
    *({"origin": "http://127.0.0.1:{port}", "sec-fetch-site": site} for site in SITES[:4]),
]


def send(live, method="GET", path="/v1/models", headers=(), body=None):
    """Send a request with exactly these headers; the host is right unless it is among them."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=30)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    given = {
        "host": f"127.0.0.1:{live.port}",
        **{name: value.format(port=live.port) for name, value in dict(headers).items()},
    }
    for name, value in given.items():
        connection.putheader(name, value.encode("latin-1"))
    if body is not None:
        connection.putheader("content-length", str(len(body)))
    connection.endheaders(body)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, response.headers, content


@pytest.fixture(scope="module")
def open_server(runs):
    """A server without a key."""
    with serving(runs, ("prose",)) as server:
        yield server


def test_there_are_eighty_hostile_cases():
    assert len(CASES) >= 80


@pytest.mark.parametrize("headers", CASES, ids=str)
def test_other_names_and_other_sites_are_refused(open_server, headers):
    status, sent, content = send(open_server, headers=headers)
    assert status in (400, 403), content
    assert "access-control-allow-origin" not in sent


def test_own_pages_and_programs_are_answered(open_server):
    own = "http://127.0.0.1:{port}"
    for headers in (
        {},
        {"host": "localhost:{port}"},
        {"origin": own, "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ):
        assert send(open_server, headers=headers)[0] == 200, headers


def test_another_address_of_this_machine_is_a_name_too(runs):
    with serving(runs, ("prose",), host="127.0.0.7") as server:
        assert server.client.get("/v1/models").status_code == 200
        assert server.client.get("/v1/models", headers={"host": f"127.0.0.8:{server.port}"}).status_code == 403


def test_every_route_needs_the_key_unless_it_is_public(live):
    routes = live.server.config.app.app.routes
    assert len(routes) >= 13
    for route in routes:
        path = route.path.replace("{name:path}", "prose").replace("{name}", "try.js")
        for method in sorted(route.methods - {"HEAD"}):
            assert (send(live, method, path)[0] == 401) is (path not in PUBLIC), (method, path)
    assert sorted(PUBLIC) == ["/", "/health", "/ready", "/static/icon.svg", "/static/try.css", "/static/try.js"]


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1/nothing", "/static/../app.py", "//health", "/health/", "/HEALTH", "/static/x"]
)
def test_addresses_that_do_not_exist_need_the_key_too(live, path):
    assert send(live, path=path)[0] == 401
    assert send(live, path=path, headers=live.headers)[0] == 404


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {KEY}",
        KEY,
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Bearer x {KEY}",
        "Bearer \xff",
    ],
)
def test_a_wrong_key_is_refused(live, value):
    status, headers, content = send(live, headers={"authorization": value})
    assert status == 401 and headers["www-authenticate"] == "Bearer" and b"invalid_api_key" in content


def test_every_response_has_the_security_headers(live):
    for path, status in (("/health", 200), ("/v1/models", 401), ("/", 200), ("/nothing", 401)):
        found, headers, _ = send(live, path=path)
        assert found == status and {name: headers[name] for name in HEADERS} == HEADERS
        assert "server" not in headers


def test_an_allowed_origin_gets_cors_headers_and_others_do_not(runs):
    with serving(runs, ("prose",), keys=(KEY,), origins=("https://app.example",)) as server:
        mine = {"origin": "https://app.example", "sec-fetch-site": "cross-site"}
        status, headers, _ = send(server, headers={**mine, **server.headers})
        assert (status, headers["access-control-allow-origin"], headers["vary"]) == (
            200,
            "https://app.example",
            "Origin",
        )
        preflight = {**mine, "access-control-request-method": "POST"}
        status, headers, _ = send(server, "OPTIONS", "/v1/completions", preflight)
        assert (status, headers["access-control-allow-headers"]) == (204, "authorization, content-type")
        assert send(server, headers=mine)[0] == 401  # an origin is no key
        other = {**preflight, "origin": "https://app.example.evil"}
        status, headers, _ = send(server, "OPTIONS", "/v1/completions", other)
        assert status == 403 and "access-control-allow-origin" not in headers


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_machines_are_let_in_with_a_key_only(runs, host, monkeypatch):
    monkeypatch.delenv("SACCADE_API_KEY", raising=False)
    done = CliRunner().invoke(main, ["serve", "prose", "--runs", str(runs), "--host", host, "--port", "0"])
    assert done.exit_code == 2
    assert f"--host {host} lets other machines connect, so a key is needed" in done.stderr


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("a.b", False),
    ],
)
def test_which_hosts_are_this_machine(host, expected):
    assert is_loopback(host) is expected


def test_keys_come_from_a_file_or_the_environment(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n\nanother-key-0123456789\n")
    assert read_keys(file, "") == (KEY, "another-key-0123456789")
    assert read_keys(None, KEY) == (KEY,) and read_keys(None, "") == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must have a key, but is empty; write one with"),
        ("short\n", "at least 16 printable ASCII characters without spaces, but one of .* has 5; make one with"),
        ("a key with spaces in it\n", "without spaces, but one of .* has 23"),
        ("ключ-ключ-ключ-ключ\n", "printable ASCII characters"),
    ],
)
def test_a_bad_file_of_keys_is_refused(tmp_path, content, message):
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(UsageError, match=message):
        read_keys(file, "")


def test_a_missing_file_of_keys_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"--api-key-file must be a file of text, but .*nothing cannot be read"):
        read_keys(tmp_path / "nothing", "")


@pytest.mark.parametrize("origin", ["*", "example.org", "https://", "https://a/b", "ftp://a", "https://*.a"])
def test_a_bad_origin_is_refused(origin):
    with pytest.raises(UsageError, match=r"--allow-origin must be like https://example\.org, but is"):
        check_origins([origin])


PATHS = [
    *(
        "/etc/passwd",
        "../../../../etc/passwd",
        "..\\..\\windows\\win.ini",
        "~/.ssh/id_rsa",
        "~root/.bashrc",
        "photo.png",
    ),
    *(
        "file:///etc/passwd",
        "file:/etc/passwd",
        "FILE:///etc/passwd",
        "http://127.0.0.1/x",
        "https://evil.example/a.png",
    ),
    *(
        "\\\\server\\share\\x.png",
        "//server/share/x.png",
        "\\\\?\\C:\\x",
        "C:\\x.png",
        "/proc/self/environ",
        "/dev/stdin",
    ),
    *("./x", "/etc//passwd", "/etc/passwd\0.png", "\0", " /etc/passwd", "/etc/passwd ", "data:/etc/passwd", "DATA:,x"),
    *(
        "%2fetc%2fpasswd",
        "/etc/pass\nwd",
        "..%2f",
        "ftp://x/y",
        "gopher://x",
        "jar:file:///x!/y",
        "/dev/zero",
        "-",
        ".",
    ),
]
FILES = [Image("field"), Audio("field"), Graph("field"), World("field"), Vector("field")]


@pytest.mark.parametrize("value", PATHS)
@pytest.mark.parametrize("field", FILES, ids=lambda field: field.kind)
def test_a_text_never_opens_a_file(monkeypatch, field, value):
    opened = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: opened.append(path))
    monkeypatch.setattr("builtins.open", lambda *given, **_: opened.append(given))
    try:
        content = safe_value(field, value)
    except ApiError as error:
        assert error.status == 400
    else:  # it happens to be base64: it is decoded
        assert content == base64.b64decode(value.strip())
    assert not opened


def test_a_real_file_is_not_read_even_if_its_name_is_base64(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "abcd").write_bytes(b"secret")
    assert safe_value(Image("image"), "abcd") == base64.b64decode("abcd")
    with pytest.raises(ApiError, match="must be valid JSON"):
        safe_value(Graph("graph"), "abcd")


@pytest.mark.parametrize("value", [b"\x89PNG", "data:image/png;base64,iVBORw==", "iVBORw==", "iVBO\nRw=="])
def test_files_come_as_uploads_data_urls_or_base64(value):
    assert safe_value(Image("image"), value) == b"\x89PNG"


@pytest.mark.parametrize("value", [[], [[0.1]], [0.1, 16000], [[0.1], 16000.0], [[0.1], True], {"path": "/etc/passwd"}])
def test_sound_is_a_file_or_samples_with_their_rate(value):
    with pytest.raises(ApiError, match=r"a data URL or base64 or a list \[samples, rate\], but is"):
        safe_value(Audio("field"), value)


def test_texts_stay_texts():
    assert safe_value(Text("text"), "/etc/passwd") == "/etc/passwd"


def test_a_field_that_is_not_known_gets_no_text():
    class Other(Text.__mro__[1]):
        kind = "other"

        def read(self, value):
            return Path(value).read_bytes()

    with pytest.raises(ApiError, match="field must be a number, a list or an object, but is '/etc/passwd'"):
        safe_value(Other("field"), "/etc/passwd")


@pytest.mark.parametrize("value", PATHS)
def test_the_server_reads_no_file_that_a_request_names(live, value):
    answer = live.post("/v1/tasks/image_classification", inputs={"image": value})
    assert answer.status_code == 400 and "root:" not in answer.text
    form = live.client.post("/v1/tasks/image_classification", files={"image": (None, value)})
    assert form.status_code == 400 and "root:" not in form.text
