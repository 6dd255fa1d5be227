"""Model: inputs by position and name, options, lists in batches, refusals, and what a notebook shows."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from saccade.cli.inputs import parse_arguments, read_examples
from saccade.core import Task as Contract
from saccade.core.attention import AttentionMap, AttentionMaps
from saccade.core.axes import Role, TokenAxis
from saccade.core.evaluation import Evaluation, Metric
from saccade.core.fields import Image, Text, Vector
from saccade.core.outputs import TextOutput
from saccade.core.prediction import GeneratedToken, Prediction
from saccade.errors import DataError, ModelFileError, UsageError
from saccade.model import Model, ModelPrediction


@dataclass(frozen=True)
class Options:
    """Options of the fake task."""

    beam: int = 4
    """width of the beam"""
    attention: bool = False
    """record the attention"""


class Fake(Contract):
    """Answers with its inputs in capitals, and remembers how it was called."""

    Config, Options, summary = Options, Options, "a fake"
    metric = Metric("loss", False)
    inputs = (Text("question"), Text("context", optional=True))

    def __init__(self) -> None:
        self.model = nn.Linear(2, 3)
        self.calls: list[tuple[int, Options]] = []
        self.loaded: list[tuple[Path, bool]] = []

    @classmethod
    def prepare(cls, config, data, assets, *, base=None, progress=None):
        return []

    @classmethod
    def open(cls, config, assets):
        return cls()

    def load_data(self, data, *, eval_only=False, progress=None):
        self.loaded.append((data, eval_only))
        return []

    def source(self, split, seed):
        raise NotImplementedError

    def networks(self):
        return {"model": self.model}

    def losses(self, batch, networks):
        raise NotImplementedError

    def evaluate(self, split, *, quick=False, progress=None):
        return Evaluation({"loss": 0.5})

    def predict(self, inputs, options) -> Iterator[Prediction]:
        self.calls.append((len(inputs), options))
        for example in inputs:
            words = tuple(str(value) for value in example.values())
            axis = TokenAxis(Role.TEXT, words)
            maps = AttentionMaps([AttentionMap("layer.0", torch.eye(len(words))[None], axis, axis)])
            text = "|".join(words).upper()
            yield Prediction(example, TextOutput(text), {"score": 0.25}, maps if options.attention else AttentionMaps())

    def stream(self, inputs, options, control=None):
        for letter in inputs["question"]:
            yield GeneratedToken(letter, letter.upper())


@pytest.fixture
def model():
    return Model(Fake(), name="fake")


def test_inputs_are_given_by_position_or_name_and_options_by_name(model):
    for prediction in (
        model("who?", "me"),
        model("who?", context="me"),
        model(question="who?", context="me"),
        model("who?", context="me", beam=8),
    ):
        assert isinstance(prediction, ModelPrediction)
        assert prediction.text == str(prediction) == "WHO?|ME"
        assert prediction.inputs == {"question": "who?", "context": "me"}
        assert prediction.scores == {"score": 0.25}
    assert [options.beam for _, options in model.task.calls] == [4, 4, 4, 8]


def test_attention_is_recorded_for_one_example_and_not_for_a_list_unless_asked_for(model):
    assert list(model("a").attention) == ["layer.0"]
    assert model("a", "b").attention["layer.0"].rows(0, 1, head=0).tolist() == [[[1.0, 0.0]]]
    assert not model("a", attention=False).attention
    assert not model(["a"])[0].attention
    assert model(["a"], attention=True)[0].attention


def test_a_list_is_predicted_as_one_batch_in_order(model):
    answers = model(["a", "b", "c"], beam=2)
    assert [answer.text for answer in answers] == ["A", "B", "C"]
    assert model.task.calls == [(3, Options(beam=2))]
    assert model([]) == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((["a", "b"], ["x", "y"]), {}),
        ((["a", "b"],), {"context": ["x", "y"]}),
        (([{"question": "a", "context": "x"}, {"question": "b", "context": "y"}],), {}),
    ],
)
def test_lists_of_several_inputs_are_read_side_by_side(model, given, named):
    assert [answer.text for answer in model(*given, **named)] == ["A|X", "B|Y"]


def test_an_input_that_is_no_list_counts_for_every_example(model):
    assert [answer.text for answer in model(["a", "b"], context="x")] == ["A|X", "B|X"]
    assert [answer.text for answer in model([{"question": "a"}, {"question": "b"}], context="x")] == ["A|X", "B|X"]


def test_a_list_of_numbers_is_one_vector_and_a_list_of_lists_is_a_batch():
    task = Fake()
    task.inputs = (Vector("state"),)
    model = Model(task)
    assert model([1.0, 2.0]).inputs["state"].tolist() == [1.0, 2.0]
    assert [answer.inputs["state"].tolist() for answer in model([[1.0], [2.0]])] == [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model("a", "b", "c"), r"3 inputs were given, expected at most 2; .* question, context"),
        (lambda model: model(), r"question must be given, but is not"),
        (lambda model: model(3), r"question must be a text, but is 3"),
        (lambda model: model("a", question="b"), r"question was given twice"),
        (lambda model: model("a", contxt="b"), r"no input or option 'contxt'; did you mean 'context'\?"),
        (lambda model: model("a", beem=3), r"no input or option 'beem'; did you mean 'beam'\?"),
        (lambda model: model("a", beam="wide"), r"beam must be a whole number, but is 'wide'"),
        (lambda model: model(["a", "b"], ["x"]), r"context must have 2 values, one per example, but has 1"),
        (lambda model: model(["a", 4]), r"question must be a text, but is 4"),
        (lambda model: model([{"qestion": "a"}]), r"no input 'qestion'"),
        (lambda model: list(model.predict([{"question": "a"}], beem=3)), r"no option 'beem'; did you mean 'beam'\?"),
        (lambda model: model.parse_options(["beem=3"]), r"no option 'beem'; did you mean 'beam'\?"),
        (lambda model: model.parse_options(["beam"]), r"must be written name=value, but is 'beam'"),
        (lambda model: model.evaluate(), r"data must be given to evaluate a model that is not a run; name a file"),
        (lambda model: model.export("out", format="pdf"), r"format must be one of hf, onnx, gguf, .* but is 'pdf'"),
    ],
)
def test_mistakes_are_refused_with_value_and_rule(model, call, message):
    with pytest.raises(UsageError, match=message):
        call(model)


def test_a_name_that_is_both_an_input_and_an_option_is_refused():
    task = Fake()
    task.inputs = (Text("beam"),)
    with pytest.raises(ValueError, match="a name must be an input or an option, but beam is both"):
        Model(task)


def test_options_are_parsed_from_text(model):
    assert model.parse_options(["beam=8", "attention=true"]) == {"beam": 8, "attention": True}
    assert [(option.name, option.default, option.help) for option in model.options] == [
        ("beam", 4, "width of the beam"),
        ("attention", False, "record the attention"),
    ]


def test_streamed_tokens_print_as_the_text_they_add(model):
    assert "".join(map(str, model.stream("abc"))) == "ABC"


def test_evaluating_reads_all_of_a_file_or_the_validation_data_of_the_run():
    model = Model(Fake(), data=Path("train.tsv"))
    assert model.evaluate()["loss"] == 0.5
    assert model.evaluate("test.tsv")["loss"] == 0.5
    assert model.task.loaded == [(Path("train.tsv"), False), (Path("test.tsv"), True)]


def test_a_notebook_shows_the_answer_its_scores_and_its_attention(model):
    shown = model("<b>", "me")._repr_html_()
    assert "&lt;B&gt;|ME" in shown and "<B>" not in shown
    assert "score" in shown and "0.25" in shown
    assert "<iframe" in shown
    assert "<iframe" not in model(["a"])[0]._repr_html_()
    assert "width of the beam" in model._repr_html_()
    assert repr(model) == "<saccade.Model fake(question, context?), 9 parameters>"


def test_a_prediction_becomes_json(model):
    assert model("a", "b", attention=False).to_json() == {
        "inputs": {"question": "a", "context": "b"},
        "output": {"kind": "text", "text": "A|B"},
        "scores": {"score": 0.25},
    }


def test_a_file_is_named_in_json_and_bytes_are_not(tmp_path):
    (tmp_path / "dog.png").write_bytes(b"...")
    inputs = {"image": Image("image").read(tmp_path / "dog.png"), "other": b"..."}
    named = ModelPrediction(inputs, TextOutput("a dog")).to_json()["inputs"]
    assert named == {"image": str(tmp_path / "dog.png"), "other": "<bytes>"}


def test_threads_share_a_model(model):
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = model(f"q{number}", beam=number + 1).text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: f"Q{number}" for number in range(8)}


FIELDS = (Text("question"), Text("context"))


@pytest.mark.parametrize(
    ("fields", "arguments", "example"),
    [
        (FIELDS[:1], ["length=5 is a text"], {"question": "length=5 is a text"}),
        (FIELDS[:1], ["question=5"], {"question": "question=5"}),
        (FIELDS, ["a", "b"], {"question": "a", "context": "b"}),
        (FIELDS, ["context=b", "a"], {"question": "a", "context": "b"}),
        (FIELDS, ["question=a=b", "c"], {"question": "a=b", "context": "c"}),
        (FIELDS, ["length=5", "other=1"], {"question": "length=5", "context": "other=1"}),
    ],
)
def test_arguments_are_matched_with_fields(fields, arguments, example):
    assert parse_arguments(fields, arguments) == example


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b", "c"], r"3 inputs were given, expected at most 2"),
        (["context=a", "b", "c"], r"3 inputs were given, expected at most 2"),
        (["context=a", "context=b"], r"context was given twice"),
        (["a"], r"context must be given, but is not"),
    ],
)
def test_arguments_that_do_not_match_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        parse_arguments(FIELDS, arguments)


class File(list):
    name = "questions.tsv"


def test_a_line_of_a_file_has_its_fields_separated_by_tabs_or_is_json():
    lines = File([b"a\tb\n", b'{"context": "d", "question": "c"}\r\n'])
    assert read_examples(FIELDS, lines) == [
        {"question": "a", "context": "b"},
        {"question": "c", "context": "d"},
    ]
    assert read_examples(FIELDS[:1], File([b'{"a": 1}\n', b"a\tb\n"])) == [
        {"question": '{"a": 1}'},
        {"question": "a\tb"},
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"a\tb\tc", r"questions\.tsv:2: 3 inputs were given, expected at most 2"),
        (b"a", r"questions\.tsv:2: context must be given, but is not"),
        (b'{"question": "a"', r"questions\.tsv:2: "),
        (b'{"question": "a", "contxt": "b"}', r"questions\.tsv:2: no input 'contxt'"),
        (b"caf\xe9\tx", r"questions\.tsv:2:4: byte 0xE9, expected UTF-8; convert it with iconv"),
    ],
)
def test_a_line_that_does_not_match_is_named(line, message):
    with pytest.raises(DataError, match=message):
        read_examples(FIELDS, File([b"a\tb", line]))


def test_outputs_that_are_not_finite_are_an_error_and_never_an_answer():
    def broken(*_, **__):
        raise FloatingPointError("the logits must be finite, but are not")
        yield

    task = Fake()
    task.predict = task.stream = broken
    task.evaluate = lambda *_, **__: next(broken())
    model, message = Model(task, data=Path("rows.tsv")), r"^the logits must be finite, but are not; the weights are too"
    for answer in (lambda: model("a"), lambda: list(model.stream("a")), model.evaluate):
        with pytest.raises(ModelFileError, match=message):
            answer()


def test_the_notes_of_a_prediction_are_part_of_its_json_and_its_page():
    prediction = ModelPrediction({"text": "a"}, TextOutput("b"), notes=("cut to 1 of 2 tokens: text '<a>'",))
    assert prediction.to_json()["notes"] == ["cut to 1 of 2 tokens: text '<a>'"]
    assert "cut to 1 of 2 tokens: text &#x27;&lt;a&gt;&#x27;" in prediction._repr_html_()
