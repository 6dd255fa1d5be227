"""The short form of tests/reliability/hostile_requests.py: mutated requests to every address of a running studio."""

import pytest

from tests.reliability.hostile_requests import Request, attack, failure
from tests.reliability.live_studio import Answer, start_studio

POLICY = {"content-security-policy": "default-src 'self'"}


@pytest.fixture(scope="module")
def studio(place):
    return start_studio(place / "runs")


def test_no_hostile_request_ends_in_an_error_of_the_server(studio):
    classes, _, failures = attack(studio, 300, seed=7)
    assert not failures, "\n".join(failures)
    assert classes["2xx"] > 20 and classes["4xx"] > 100 and classes["5xx"] == 0


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (Answer(200, POLICY, b"{}"), ""),
        (Answer(500, POLICY, b"Internal Server Error"), "status 500"),
        (Answer(303, {**POLICY, "location": "//evil.example/"}), "redirects to //evil.example/"),
        (Answer(303, {**POLICY, "location": "/runs"}), ""),
        (
            Answer(200, {**POLICY, "content-type": "application/json"}, b'{"a": NaN}'),
            "JSON has no NaN",
        ),
        (Answer(200, {}, b"{}"), "without a content security policy"),
        (Answer(200, POLICY, b"{}", 60.0), "took 60.0 s"),
        (Answer(0), ""),
    ],
)
def test_the_check_of_an_answer_can_fail(answer, wrong):
    assert wrong in failure(answer) and bool(wrong) == bool(failure(answer))


def test_a_request_is_sent_as_it_is_described(studio):
    request = Request("POST", "/api/look", [("a", "b")], {"x": "\ud800"}, {"Host": "evil", "X": ""}, (b"odd line",))
    lines = request.encode(studio).split(b"\r\n")
    assert lines[0] == b"POST /api/look?a=b HTTP/1.1" and lines[1] == b"Host: evil"
    assert lines[-3:] == [b"odd line", b"", b'{"x": "\\ud800"}']
