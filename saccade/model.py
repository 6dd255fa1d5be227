"""Model: what `saccade.load` returns; call it with inputs to get predictions.

A model can be used by several threads at once: predicting does not change it.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar, overload

from saccade.config import Setting, from_json, override, settings
from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation
from saccade.core.fields import Field, Graph, Vector, bind, bind_line, name_of
from saccade.core.generation import StreamControl, TextEngine
from saccade.core.prediction import GeneratedToken, Prediction
from saccade.core.source import Split
from saccade.core.task import InputLength, Task
from saccade.errors import ModelFileError, UsageError, suggest
from saccade.look.explain import Explanation
from saccade.look.figure import AttentionFigure
from saccade.look.head_cache import cached_survey
from saccade.look.head_report import HeadReport
from saccade.look.head_survey import SurveySettings
from saccade.look.overlay import OverlayStyle
from saccade.look.serialize import alignment_to_json
from saccade.pretrained.exports import choose_writer

Result = TypeVar("Result")


@dataclass(frozen=True)
class ModelPrediction(Prediction):
    """The prediction for one example; a notebook shows it with its attention."""

    @classmethod
    def of(cls, prediction: Prediction) -> ModelPrediction:
        """Wrap the prediction of a task."""
        values = {field.name: getattr(prediction, field.name) for field in fields(prediction)}
        return cls(**{**values, "alternatives": tuple(map(cls.of, prediction.alternatives))})

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """Return inputs, output and scores, with the alternatives and the alignment where there are any."""
        record: dict[str, Any] = {
            "inputs": {name: _jsonable(value) for name, value in self.inputs.items()},
            "output": self.output.to_json(),
            "scores": dict(self.scores),
        }
        if self.alternatives:
            alternatives = ({"output": p.output.to_json(), "scores": dict(p.scores)} for p in self.alternatives)
            record["alternatives"] = list(alternatives)
        if self.notes:
            record["notes"] = list(self.notes)
        record |= alignment_to_json(self.alignment)
        return record

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{value:.4g}</td></tr>" for name, value in self.scores.items()
        )
        scores = f"<table>{rows}</table>" if rows else ""
        scores += "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        figure = AttentionFigure.of(self)._repr_html_() if self.attention else ""
        return f"{self.output.to_html()}{scores}{figure}"


class Model:
    """A trained or pretrained model.

        model("Good morning.", beam=8)              one example: inputs by position or name, options by name
        model(["Good morning.", "Good night."])     a list gives a list, computed in batches

    `attention` is recorded for a single example by default, and not for a list.
    """

    def __init__(self, task: Task, *, name: str = "", data: Path | None = None, fingerprint: str = "") -> None:
        """Wrap a task whose networks are in eval mode; `evaluate` reads `data` of that fingerprint by default."""
        self.task, self.name, self.data, self.fingerprint = task, name, data, fingerprint
        self._evaluating = threading.Lock()
        self._option_names = frozenset(setting.name for setting in self.options)
        ambiguous = sorted(self._option_names & {field.name for field in task.inputs})
        if ambiguous:
            raise ValueError(f"a name must be an input or an option, but {', '.join(ambiguous)} is both")

    @property
    def inputs(self) -> tuple[Field, ...]:
        """The inputs the model takes, in order."""
        return self.task.inputs

    @property
    def options(self) -> list[Setting]:
        """The options of a call: name, type, default and help."""
        return settings(self.task.Options)

    @overload
    def __call__(self, first: list[Any], /, *inputs: Any, **inputs_and_options: Any) -> list[ModelPrediction]: ...
    @overload
    def __call__(self, *inputs: Any, **inputs_and_options: Any) -> ModelPrediction: ...
    def __call__(self, *inputs: Any, **inputs_and_options: Any) -> ModelPrediction | list[ModelPrediction]:
        """Return the prediction for one example, or a list of them if the first input is a list."""
        named, options = self._separate(inputs_and_options)
        if inputs and self._is_batch(inputs[0]):
            return list(self._predict(self._examples(inputs, named), options, attention=False))
        (prediction,) = self._predict([bind(self.inputs, inputs, named)], options, attention=True)
        return prediction

    def parse_options(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Return `key=value` overrides, as a command line has them, as options of a call."""
        for entry in overrides:
            if "=" not in entry:
                raise UsageError(f"an option must be written name=value, but is '{entry}'; for example {self._example}")
        self._check_options(entry.partition("=")[0] for entry in overrides)
        parsed = override(self.task.Options(), overrides)
        return {name: getattr(parsed, name) for name in (entry.partition("=")[0] for entry in overrides)}

    def predict(self, examples: Sequence[Mapping[str, Any]], **options: Any) -> Iterator[ModelPrediction]:
        """Yield the predictions for examples, each a mapping of input names to values, computed in batches."""
        bound = [bind(self.inputs, (), example) for example in examples]
        self._check_options(options)
        return self._predict(bound, options, attention=False)

    def input_lengths(self, example: Mapping[str, Any], **options: Any) -> list[InputLength]:
        """Return how many tokens the texts of an example have and how many the model reads; nothing is computed."""
        self._check_options(options)
        return self.task.input_lengths(bind(self.inputs, (), example), from_json(self.task.Options, options))

    def stream(
        self, *inputs: Any, control: StreamControl | None = None, **inputs_and_options: Any
    ) -> Iterator[GeneratedToken]:
        """Yield the answer token by token; `str(token)` is the text it adds.

        With a `control` the caller gives the first tokens, and may replace `control.options` while the stream runs.
        """
        named, options = self._separate(inputs_and_options)
        bound, given = bind(self.inputs, inputs, named), self.read_options(**options)
        return _checked(self.task.stream(bound, given, control))

    def read_options(self, **options: Any) -> Any:
        """Return the options of a call as the task takes them, checked; what is not given has its default."""
        self._check_options(options)
        return from_json(self.task.Options, options)

    def engine(self, rows: int | None = None) -> TextEngine:
        """Return an engine that generates text for many requests at once, `rows` of them in every step.

        None: 16 rows, or as many as fit into memory.
        """
        return self.task.engine(rows)

    def attention(
        self,
        *inputs: Any,
        layer: str = "",
        head: int | None = None,
        pieces: bool = False,
        style: OverlayStyle = OverlayStyle(),
        **inputs_and_options: Any,
    ) -> AttentionFigure:
        """Return the figure of one attention: the best aligned, the mean or one head of a layer, or `rollout`.

        `pieces`: show the tokens of the model instead of words. `style`: how attention is drawn over an image.
        """
        named, options = self._separate({**inputs_and_options, "attention": True})
        (prediction,) = self._predict([bind(self.inputs, inputs, named)], options, attention=True)
        return AttentionFigure.of(prediction, layer, head, pieces=pieces, style=style)

    def explain(self, prediction: Prediction) -> Explanation:
        """Return what can be asked about a prediction: ablations, importance of heads, attributions, logit lens."""
        return Explanation(self.task, prediction)

    def survey_heads(
        self,
        data: str | Path | Sequence[Any] | None = None,
        settings: SurveySettings = SurveySettings(),
        *,
        progress: Progress = ignore_progress,
    ) -> HeadReport:
        """Return what each head attends to over many rows, and what the answers lose without it; kept on disk.

        `data`: examples, or a text file with an example on each line; by default the validation rows of the run.
        """
        if data is None:
            examples = self.validation_inputs(settings.rows)
        elif isinstance(data, str | Path):
            try:
                examples = self.read_lines(Path(data).read_text(encoding="utf-8").splitlines(), str(data))
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"data must be a readable file of UTF-8, but {data} is not ({error})") from error
        else:
            examples = [dict(row) if isinstance(row, Mapping) else {self.inputs[0].name: row} for row in data]
        bound = [bind(self.inputs, (), example) for example in examples]
        return cached_survey(self.task, bound, settings, progress)

    def read_lines(self, lines: Sequence[str], name: str = "texts") -> list[dict[str, Any]]:
        """Return the examples of some lines, without the empty ones; several inputs are separated by tabs, or JSON."""
        examples = []
        for number, line in enumerate(lines, 1):
            try:
                examples += [bind_line(self.inputs, line)] if line.strip() else []
            except UsageError as error:
                raise UsageError(f"{name}:{number}: {error}") from error
        return examples

    def validation_inputs(self, limit: int) -> list[dict[str, Any]]:
        """Return the inputs of the validation rows of a run, of more than `limit` an even sample."""
        if self.data is None:
            raise UsageError("data must be given for a model that is not a run; give texts, or a file of them")
        with self._evaluating:
            self.task.load_data(self.data)
            self.task.check_fingerprint(self.fingerprint, self.data, self.name)
            return self.task.validation_inputs(limit)

    def replay(self, seed: int = 0) -> Mapping[str, Any]:
        """Return one episode of a policy in its environment, which starts from a seed, as JSON."""
        return self.task.replay(seed)

    def evaluate(
        self, data: str | Path | None = None, *, dtype: str = "auto", progress: Progress = ignore_progress
    ) -> Evaluation:
        """Evaluate on a data file, or by default on the validation data of the run.

        `dtype`: with the weights of a language model rounded to it; a note says what that costs. Of data with parts the
        test part is scored, else the validation part; a note of the evaluation says so.
        """
        if data is None and self.data is None:
            raise UsageError("data must be given to evaluate a model that is not a run; name a file")
        with self._evaluating:  # the data are loaded into the task
            path = Path(data or self.data or "")
            self.task.load_data(path, eval_only=data is not None)
            if data is None:
                self.task.check_fingerprint(self.fingerprint, path, self.name)
            try:
                if dtype in ("auto", "float32"):
                    evaluation = self.task.evaluate(Split.VALID, progress=progress)
                else:
                    evaluation = self.task.evaluate_rounded(dtype, Split.VALID, progress=progress)
            except FloatingPointError as error:
                raise _not_finite(error) from error
            return replace(evaluation, notes=(*self.task.data_notes, *evaluation.notes))

    def export(self, path: str | Path, format: str = "hf", *, dtype: str = "") -> list[str]:
        """Write the model for other tools; return notes with the difference of its outputs, which is computed.

        hf, onnx, ctranslate2 and peft (LoRA adapters alone) write a new folder, gguf a new file, in the `dtype` f32,
        f16 (default) or q8_0.
        """
        write = choose_writer(format, dtype)
        return write(self.task.to_pretrained(), Path(path))

    def parameters(self) -> int:
        """Return the number of parameters."""
        return sum(value.numel() for network in self.task.networks().values() for value in network.parameters())

    def __repr__(self) -> str:
        inputs = ", ".join(field.name + ("?" if field.optional else "") for field in self.inputs)
        return f"<saccade.Model {self.name or type(self.task).__module__}({inputs}), {self.parameters():,} parameters>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(setting.name)}</td><td>{html.escape(str(setting.default))}</td>"
            f"<td>{html.escape(setting.help)}</td></tr>"
            for setting in self.options
        )
        return f"<p>{html.escape(repr(self))}</p><table><tr><th>option</th><th>default</th><th></th></tr>{rows}</table>"

    @property
    def _example(self) -> str:
        first = self.options[0]
        return f"{first.name}={first.default}"

    def _separate(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Split keyword arguments into inputs and options; a name that is neither is refused."""
        names = {field.name for field in self.inputs}
        unknown = next((name for name in given if name not in names | self._option_names), None)
        if unknown is not None:
            raise UsageError(f"no input or option '{unknown}'{suggest(unknown, [*names, *sorted(self._option_names)])}")
        named = {name: value for name, value in given.items() if name in names}
        return named, {name: value for name, value in given.items() if name not in names}

    def _check_options(self, names: Iterable[str]) -> None:
        """Refuse an option that the task does not have."""
        unknown = next((name for name in names if name not in self._option_names), None)
        if unknown is not None:
            raise UsageError(f"no option '{unknown}'{suggest(unknown, sorted(self._option_names))}")

    def _predict(
        self, examples: Sequence[Mapping[str, Any]], options: Mapping[str, Any], *, attention: bool
    ) -> Iterator[ModelPrediction]:
        """Yield predictions for bound examples; `attention`: whether it is recorded unless the options set it."""
        if "attention" in self._option_names:
            options = {"attention": attention, **options}
        checked = from_json(self.task.Options, options)
        return map(ModelPrediction.of, _checked(self.task.predict(examples, checked)))

    def _is_batch(self, value: Any) -> bool:
        """Whether the first input is a list of examples; a list of numbers is one vector."""
        if not isinstance(value, list):
            return False
        return not (isinstance(self.inputs[0], Vector) and (not value or isinstance(value[0], int | float)))

    def _examples(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return one mapping per example: other lists are parallel to the first."""
        first, *others = inputs
        for field, value in [
            *zip(self.inputs[1:], others, strict=False),
            *((f, named.get(f.name)) for f in self.inputs),
        ]:
            if isinstance(value, list) and len(value) != len(first):
                raise UsageError(f"{field.name} must have {len(first)} values, one per example, but has {len(value)}")
        rows = []
        for number, row in enumerate(first):
            shared = {name: value[number] if isinstance(value, list) else value for name, value in named.items()}
            is_example = isinstance(row, Mapping) and not (isinstance(self.inputs[0], Graph) and "nodes" in row)
            if is_example and not others:
                rows.append(bind(self.inputs, (), {**shared, **row}))
            else:
                positional = (value[number] if isinstance(value, list) else value for value in others)
                rows.append(bind(self.inputs, (row, *positional), shared))
        return rows


def _checked(results: Iterator[Result]) -> Iterator[Result]:
    """Yield the results of a task; outputs that are not finite are an error of the model, never an answer."""
    try:
        yield from results
    except FloatingPointError as error:
        raise _not_finite(error) from error


def _not_finite(error: FloatingPointError) -> ModelFileError:
    return ModelFileError(f"{error}; the weights are too large or damaged: train the model again, or choose another")


def _jsonable(value: Any) -> Any:
    """Return an input as JSON: text and mappings as they are, a file by its name, anything else by its type."""
    return value if isinstance(value, str | int | float | dict) else name_of(value, f"<{type(value).__name__}>")
