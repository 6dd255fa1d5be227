"""Input fields: every supported type is read, everything else is refused with name, value and rule."""

import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from saccade.core import Audio, Graph, Image, Text, Vector, World, bind
from saccade.errors import UsageError

QUESTION, CONTEXT = Text("question"), Text("context")


def test_positional_values_fill_the_fields_in_order_and_names_may_come_in_any():
    assert bind([QUESTION, CONTEXT], ["Who?"], {"context": "Ann."}) == {"question": "Who?", "context": "Ann."}
    assert bind([QUESTION, CONTEXT], [], {"context": "Ann.", "question": "Who?"}) == {
        "question": "Who?",
        "context": "Ann.",
    }


def test_a_text_that_looks_like_an_option_is_a_text():
    assert bind([Text("prompt")], ["length=5 ..."]) == {"prompt": "length=5 ..."}


def test_an_optional_field_may_be_absent():
    fields = [Text("first"), Text("second", optional=True)]
    assert bind(fields, ["a"]) == {"first": "a"}
    assert bind(fields, ["a", None]) == {"first": "a"}
    assert bind(fields, ["a", ""]) == {"first": "a", "second": ""}


@pytest.mark.parametrize(
    ("values", "named", "message"),
    [
        (["a", "b", "c"], {}, "3 inputs were given, expected at most 2; this model takes question, context"),
        (["a"], {}, "context must be given, but is not; this model takes question, context"),
        ([], {}, "question and context must be given, but are not"),
        (["a"], {"contxt": "b"}, "no input 'contxt'; this model takes question, context"),
        (["a"], {"question": "b", "context": "c"}, "question was given twice"),
        ([5, "b"], {}, "question must be a text, but is 5"),
        ([["a"], "b"], {}, "question must be a text, but is list"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(values, named, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        bind([QUESTION, CONTEXT], values, named)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "question must hold text, but is ''; write something in it"),
        (" \n\u3000", r"question must hold text, but is ' \n\u3000'; write something in it"),
        ("a\ud800b", "question must be valid Unicode, but character 2 is the lone surrogate U+D800; remove it"),
        ("\udcff", "question must be valid Unicode, but character 1 is the lone surrogate U+DCFF; remove it"),
    ],
)
def test_a_text_must_hold_text_of_valid_unicode(value, message):
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        bind([QUESTION], [value])
    if not value.strip():
        assert bind([Text("prompt", may_be_empty=True)], [value]) == {"prompt": value}


@pytest.mark.parametrize("value", ["[1, NaN]", [float("inf")], "[1e39]"])
def test_a_vector_must_hold_finite_numbers(value):
    with pytest.raises(UsageError, match=r"state must hold finite numbers, but one is (nan|inf)"):
        bind([Vector("state")], [value])


@pytest.mark.parametrize("field", [Vector("state"), Graph("graph")])
def test_json_that_is_nested_too_deep_is_refused(field):
    with pytest.raises(UsageError, match=f"{field.name} must be a"):
        field.read('{"nodes": ' + "[" * 99999)


def test_an_image_is_a_path_bytes_a_data_url_an_array_or_a_pil_image(tmp_path):
    field, pixels = Image("image"), np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    path = tmp_path / "dots.png"
    Pillow.fromarray(pixels).save(path)
    encoded = path.read_bytes()
    url = "data:image/png;base64," + base64.b64encode(encoded).decode()
    for value in (path, str(path), encoded, url):
        assert field.read(value) == encoded
    expected = torch.from_numpy(pixels).permute(2, 0, 1)
    for value in (pixels, torch.from_numpy(pixels)):
        torch.testing.assert_close(field.read(value), expected)
    assert np.array_equal(np.asarray(Pillow.open(io.BytesIO(field.read(Pillow.fromarray(pixels))))), pixels)
    assert field.read(pixels[..., 0]).shape == (1, 2, 4)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nowhere.png", r"image: cannot read 'nowhere.png' \(No such file or directory\); name a file"),
        ("data:image/png;base64,@@", "image must be a valid data URL, but its base64 is damaged"),
        (np.zeros((2, 2), np.float32), r"image must be a uint8 array .* but is torch.float32 of shape \(2, 2\)"),
        (np.zeros((2, 2, 7), np.uint8), r"but is torch.uint8 of shape \(2, 2, 7\)"),
        ({"a": 1}, "image must be a path, bytes, a data URL, a PIL image or an array of pixels, but is dict"),
    ],
)
def test_invalid_images_are_refused(value, message):
    with pytest.raises(UsageError, match=message):
        Image("image").read(value)


def test_audio_graphs_and_vectors(tmp_path):
    samples, rate = Audio("audio").read(([0.0, 0.5], 8000))
    assert samples.tolist() == [0.0, 0.5] and rate == 8000
    graph = {"nodes": [1, 2], "edges": [[1, 2]]}
    path = tmp_path / "graph.json"
    path.write_text('{"nodes": [1, 2], "edges": [[1, 2]]}')
    for value in (graph, path, path.read_text()):
        assert Graph("graph").read(value) == graph
    assert Graph("graph").read({"nodes": [1], "links": []}) == {"nodes": [1], "links": []}
    for value in ([1, 2.5], "[1, 2.5]", np.array([1, 2.5])):
        assert Vector("state").read(value).tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            Audio("audio"),
            [0.0, 0.5],
            r"audio must be a path, bytes, a data URL or a pair \(samples, rate\), but is list",
        ),
        (Audio("audio"), ([[0.0]], 8000), r"audio must have samples of shape \(T,\), but they are \(1, 1\)"),
        (Graph("graph"), {"nodes": []}, r'or a path to it, but has no "edges" \(or "links"\); add the list'),
        (
            Graph("graph"),
            {"links": []},
            'graph must be a mapping with "nodes" and "edges", JSON text of one, or a path',
        ),
        (Graph("graph"), {"links": []}, 'but has no "nodes"; add the list'),
        (Graph("graph"), {}, r'but has no "nodes" and no "edges" \(or "links"\); add the list'),
        (Graph("graph"), "{broken", "graph must be a mapping .* but cannot be parsed"),
        (Vector("state"), "five", "state must be a list of numbers, but is 'five'"),
        (Vector("state"), [[1.0]], r"state must be a vector \(D,\), but has shape \(1, 1\)"),
    ],
)
def test_invalid_values_are_refused(field, value, message):
    with pytest.raises(UsageError, match=message):
        field.read(value)


def test_a_world_is_a_json_object_that_its_rules_accept(tmp_path):
    def check(value):
        if "map" not in value:
            raise ValueError(f"no 'map' beside {', '.join(value)}")

    field = World("map", check=check)
    path = tmp_path / "world.json"
    path.write_text('{"map": [1]}')
    for value in ({"map": [1]}, '{"map": [1]}', ' {"map": [1]}', path, str(path), b'{"map": [1]}'):
        assert field.read(value) == {"map": [1]}
    for value, message in (
        ({"start": 1}, "map: no 'map' beside start"),
        ("[1]", "map: cannot read '[1]'"),
        (b"[1]", "map must be a JSON object, its text, or a path to it, but is list"),
        (7, "map must be a JSON object, its text, or a path to it, but is 7"),
        ('{"map": ', "map must be a JSON object, its text, or a path to it, but cannot be parsed: "),
        (str(tmp_path / "none.json"), "map: cannot read "),
    ):
        with pytest.raises(UsageError) as error:
            field.read(value)
        assert str(error.value).startswith(message)
