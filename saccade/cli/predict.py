"""The commands that use a model: evaluate, predict, look."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from saccade.cli.group import (
    base_option,
    checkpoint_option,
    dtype_option,
    json_option,
    log,
    main,
    option_option,
    print_json,
    progress_bar,
    runs_option,
    task_option,
)
from saccade.cli.printing import show_episode, show_evaluation, show_figure, show_prediction, show_text
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.core import Prediction
    from saccade.look.figure import AttentionFigure
    from saccade.model import Model

BATCH = 256  # examples of a file that are predicted together


@main.command()
@click.argument("ref")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Data to evaluate on, or their test part if they have parts; default: the validation data of the run.",
)
@checkpoint_option
@dtype_option
@runs_option
@task_option
@base_option
@json_option
def evaluate(ref: str, data: Path | None, dtype: str, as_json: bool, **source: Any) -> None:
    """Evaluate a model on validation or other data.

    REF is a run, evaluated on all its validation data, or with --data any run or pretrained model.

    \b
    Examples:
      saccade evaluate book-1
      saccade evaluate pairs-1 --data test.tsv --checkpoint mean --json
      saccade evaluate book-1 --dtype int8
    """
    from saccade import api

    with progress_bar() as bar:
        model = api.load(ref, log=bar.log, **source)
        evaluation = model.evaluate(
            data, dtype=dtype, progress=lambda fraction: bar.on_progress("evaluating", fraction)
        )
    show_evaluation(evaluation, as_json)


@main.command()
@click.argument("ref")
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@option_option
@click.option("--file", type=click.File("rb"), help="One example per line; - is stdin.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write the generated images to a .png file.")
@checkpoint_option
@dtype_option
@runs_option
@task_option
@base_option
@json_option
def predict(
    ref: str, inputs: tuple[str, ...], options: tuple[str, ...], file: Any, out: Path | None, **others: Any
) -> None:
    """Predict for one example or each line of a file.

    REF is a run or a pretrained model. A model with one input takes any INPUT as it is. For a model with several,
    name=value sets the input of that name and the others are filled in order; a line of a file has them separated by
    tabs, or is a JSON object.

    \b
    Examples:
      saccade predict book-1 "It was a"
      saccade predict book-1 "It was a" -o temperature=0 -o max_new_tokens=50
      saccade predict pairs-1 "Good morning." -o n_best=3
      saccade predict answers-1 "Who wrote it?" context="The author was Ada."
      saccade predict pairs-1 --file sentences.txt --json
      saccade predict digits-1 -o samples=36 -o label=7 --out sevens.png
    """
    from saccade import api
    from saccade.cli.inputs import parse_arguments, read_examples

    if file is not None and (inputs or out is not None):
        raise UsageError(f"--file cannot be combined with {'INPUT arguments' if inputs else '--out'}; give one of them")
    as_json = others.pop("as_json")
    model = api.load(ref, log=log, **others)
    given = model.parse_options(options)
    if file is None:
        _predict_one(model, parse_arguments(model.inputs, inputs), given, as_json, out)
        return
    examples = read_examples(model.inputs, file)
    with progress_bar() as bar:
        for first in range(0, len(examples), BATCH):
            for prediction in model.predict(examples[first : first + BATCH], **given):
                show_prediction(prediction, as_json, _prefix(model, prediction.inputs))
            bar.on_progress("predicting", min(1.0, (first + BATCH) / len(examples)))


@main.command()
@click.argument("ref")
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@option_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Also write a .html, .svg, .pdf, .png or .json file, or a .gif: a film over the image, one gaze per word, the "
    "keys of one word after the other, or the replay of an episode; of speech also the times of words and letters: "
    ".TextGrid or .srt.",
)
@click.option(
    "--layer",
    default="",
    help="Attention to show, such as decoder.1.cross, or rollout: all layers of self-attention together; "
    "default: the word alignment, else the last layer; in a .gif the words of a question.",
)
@click.option("--head", type=click.IntRange(0), help="Head to show; default: the mean over heads.")
@click.option(
    "--against",
    metavar="OTHER",
    help="Another first input: show which weights of all layers and heads change most; --out FILE.svg draws the "
    "difference of a layer and a head, by default of the largest change.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    help="Of a policy, without INPUT: the seed of the episode that it plays.",
)
@click.option("--pieces", is_flag=True, help="Show the subword tokens of the model instead of words.")
@click.option("--at", metavar="ROW,COLUMN", default="", help="Over an image: the cell that attends; default: the mean.")
@click.option("--opacity", default=0.7, show_default=True, help="Over an image: opacity of the largest weight.")
@click.option("--blocks", is_flag=True, help="Over an image: a block for each cell; default: smooth between cells.")
@checkpoint_option
@dtype_option
@runs_option
@task_option
@base_option
@json_option
def look(ref: str, inputs: tuple[str, ...], options: tuple[str, ...], out: Path | None, **others: Any) -> None:
    """Show the attention of a model for one example.

    REF is a run or a pretrained model. Several INPUTs are given as for `saccade predict`. A policy with an environment
    plays an episode if there is no INPUT (--json and --out FILE.json: every step).

    \b
    Examples:
      saccade look pairs-1 "Good morning."
      saccade look pairs-1 "Good morning." --out morning.html
      saccade look pairs-1 "Good morning." --layer decoder.1.cross --head 2 --out morning.svg
      saccade look minilm "The street was too wide." --against "The street was too long."
      saccade look book-1 "It was a" -o max_new_tokens=20 --json
      saccade look pets-1 photo.jpg --layer rollout --out photo.png
      saccade look captions-1 photo.jpg --out film.gif
      saccade look speech-1 hello.wav --out hello.TextGrid
      saccade look answers-1 photo.jpg question="What colour is the car?"
    """
    from saccade import api
    from saccade.cli.inputs import parse_arguments
    from saccade.core import Task
    from saccade.look.overlay import OverlayStyle

    shown = {name: others.pop(name) for name in ("layer", "head", "pieces")}
    style = OverlayStyle(others.pop("opacity"), not others.pop("blocks"), _cell(others.pop("at")))
    as_json, seed, against = others.pop("as_json"), others.pop("seed"), others.pop("against")
    model = api.load(ref, log=log, **others)
    given = model.parse_options(options)
    if against is not None:
        from saccade.cli.against import look_against

        look_against(model, parse_arguments(model.inputs, inputs), against, {**shown, "options": given}, as_json, out)
        return
    if not inputs and type(model.task).replay is not Task.replay:
        show_episode(model.replay(seed), as_json, out)
        return
    figure = model.attention(**parse_arguments(model.inputs, inputs), style=style, **shown, **given)
    for note in figure.prediction.notes:
        log(note)
    if out is not None:
        figure.write(out)
        log(f"wrote {out}")
    if as_json:
        print_json(figure.to_json())
        return
    show_text(_questions(model, figure.prediction))
    show_text(f"{_prefix(model, figure.prediction.inputs)}{figure.prediction.text}\n")
    if figure.alignment:
        show_text(f"{figure.alignment}\n")
    show_figure(figure)
    _log_layers(figure, out)


def _log_layers(figure: AttentionFigure, out: Path | None) -> None:
    """Say which attention over an image is shown, in the terminal and in the file, and what others there are."""
    from saccade.core import GridAxis

    kind = "" if out is None else out.suffix.lower().removeprefix(".")
    names = dict.fromkeys(shown.name for shown in (figure.attention, figure.shown(kind)))
    others = [name for name in figure.prediction.attention if name not in names]
    if others and isinstance(figure.attention.keys, GridAxis):
        log(f"attention shown: {', '.join(names)}; others, by --layer: {', '.join(others)}")


def _predict_one(
    model: Model, example: dict[str, Any], options: dict[str, Any], as_json: bool, out: Path | None
) -> None:
    """Print the prediction for one example; a text that is continued is printed as it is generated."""
    if as_json or out is not None or not model.task.continues:
        (prediction,) = model.predict([example], **options)
        if out is not None:
            from saccade.look.sheet import write_sheet

            write_sheet(prediction, out)
            log(f"wrote {out}")
        show_prediction(prediction, as_json)
        return
    tokens = model.stream(**example, **options)
    show_text(_prefix(model, example) + str(next(tokens, "")))  # an error shows before anything is printed
    for token in tokens:
        show_text(str(token))
        sys.stdout.flush()
    click.echo()


def _prefix(model: Model, inputs: Any) -> str:
    """Return the text that an output continues; empty for most models."""
    return str(inputs[model.inputs[0].name]) if model.task.continues else ""


def _questions(model: Model, prediction: Prediction) -> str:
    """Return the texts that are inputs beside an image, one per line; nothing for other models."""
    if all(field.kind == "text" for field in model.inputs):
        return ""
    texts = {name: value for name, value in prediction.inputs.items() if isinstance(value, str)}
    return "".join(f"{name}: {text}\n" for name, text in texts.items())


def _cell(text: str) -> tuple[int, int] | None:
    """Return row and column of a cell."""
    if not text:
        return None
    match = re.fullmatch(r"([0-9]{1,6}),([0-9]{1,6})", text)
    if match is None:
        raise UsageError(f"--at must be ROW,COLUMN, such as 3,5, but is '{text}'")
    return int(match[1]), int(match[2])
