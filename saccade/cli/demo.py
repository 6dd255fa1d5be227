"""The command for a first try without data: demo."""

from __future__ import annotations

import base64
import mimetypes
import shlex
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import click

from saccade.cli.browser import is_interactive, open_page, page_address, run_studio
from saccade.cli.group import echo, log, main, progress_bar, runs_option
from saccade.cli.printing import show_figure, show_images, show_run

if TYPE_CHECKING:
    from saccade.demo._demo import DemoFiles, DemoTask
    from saccade.run import Run


@main.command()
@click.argument("name", default="dates")
@click.option("--task", default="", help="Task to train, for a demo with several of them; default: its first.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Minutes of training; default: see --list.")
@click.option("--steps", type=click.IntRange(1), help="Steps of training, instead of minutes.")
@click.option("--list", "listing", is_flag=True, help="List the demos and their tasks.")
@runs_option
def demo(name: str, task: str, minutes: float | None, steps: int | None, listing: bool, root: str) -> None:
    """Train a small model on generated data and show it.

    The demo NAME writes ordinary data files, trains on them, and opens the model in the studio. Without a NAME the
    model converts dates as they are written in some 40 languages to ISO dates, character by character.

    \b
    Examples:
      saccade demo
      saccade demo --list
      saccade demo shapes
      saccade demo shapes --task captioning
      saccade demo maze
      saccade demo maze --task image_policy
      saccade demo text-lines
      saccade demo morse
      saccade demo communities
      saccade demo cartpole
      saccade demo cartpole --task adversarial_imitation
      saccade demo digits
    """
    from saccade import api
    from saccade.demo import load_demo

    if listing:
        _list_demos()
        return
    chosen = load_demo(name)
    task = task or chosen.default
    trained = chosen.task(task)
    log(f"The demo learns to {trained.goal}.")
    files = trained.write(Path(root) / name)
    log(files.plan)
    stem = name if task == chosen.default else f"{name}-{task.replace('_', '-')}"
    run_name = api.free_name(root, stem)
    budget = {"steps": steps} if steps else {"minutes": minutes or trained.minutes}
    settings: dict[str, Any] = {**trained.settings, **budget, **({"valid": files.valid} if files.valid else {})}
    with run_studio(root) as address:
        with progress_bar() as bar:
            if address and is_interactive():
                bar.log(f"Watch it learn: {page_address(address, f'watch/{run_name}')}")
                webbrowser.open(page_address(address, f"watch/{run_name}"))
            run = api.train(
                files.train,
                task=task,
                preset=trained.preset,
                name=run_name,
                root=root,
                callbacks=[bar],
                progress=False,
                **settings,
            )
        show_run(run, False)
        page, shown = _show_model(run, files, trained, address)
        if address:
            open_page(page, shown)


def _show_model(run: Run, files: DemoFiles, trained: DemoTask, address: str) -> tuple[str, str]:
    """Print what a model does; return the page of the studio that shows it, and its address for the terminal."""
    name = run.path.name
    if trained.samples:
        _show_samples(run, trained.samples, trained.attention)
        page = page_address(address, f"samples?{urlencode({'model': name})}")
        return page, page
    _show_examples(run, files.examples, trained.attention)
    if trained.replay:
        page = page_address(address, f"replay?{urlencode({'model': name})}")
        return page, page
    first = files.examples[0]
    texts = {key: value for key, value in first.items() if not isinstance(value, Path)}
    return _look_page(address, name, first), _look_page(address, name, texts)


def _list_demos() -> None:
    """Print each demo with what it generates, and its tasks with their minutes and what they learn."""
    from saccade.demo import demo_names, load_demo

    for name in demo_names():
        listed = load_demo(name)
        echo(f"{name}: {listed.summary}")
        for task, described in listed.tasks.items():
            echo(f"  {task:28}{described.minutes:>4g} min  {described.goal}")


def _show_examples(run: Run, examples: Sequence[Mapping[str, Any]], title: str) -> None:
    """Print the predictions for the examples, the attention for the first, and a command for the second."""
    from saccade import api

    model = api.load(run)
    shown = ["  ".join(str(value) for value in example.values()) for example in examples]
    for prediction, inputs in zip(model([dict(example) for example in examples]), shown, strict=True):
        echo(f"{prediction.text}  {inputs}")
    log(f"\n{title} '{shown[0]}':")
    show_figure(model.attention(**examples[0]))
    names = [field.name for field in model.inputs][: len(examples[1])]
    positional = names == list(examples[1])  # other inputs must be named
    values = (str(value) if positional else f"{name}={value}" for name, value in examples[1].items())
    arguments = " ".join(map(shlex.quote, values))
    log(f"\nNow try: saccade look {shlex.quote(str(run.path))} {arguments} --out attention.html")


def _show_samples(run: Run, count: int, title: str) -> None:
    """Print generated images, the scores before and after training, and where the centre of the first image looks."""
    from saccade import api
    from saccade.core import GridAxis
    from saccade.look.overlay import OverlayStyle

    model = api.load(run)
    (prediction,) = model.predict([{}], samples=count)
    show_images(prediction)
    values = run.evaluation.values
    log(
        f"\nFréchet distance to held-out images: {values['untrained']:.1f} before training, "
        f"{values['frechet_distance']:.1f} after, {values['floor']:.1f} between two halves of them."
    )
    log(f"\n{title}:")
    layer, attention = next(iter(model().attention.items()))
    axis = attention.queries
    assert isinstance(axis, GridAxis)
    centre = OverlayStyle(at=(axis.rows // 2, axis.columns // 2))
    show_figure(model.attention(layer=layer, style=centre))
    name = shlex.quote(str(run.path))
    log(f"\nNow try: saccade predict {name} -o samples=36 -o label=7 --out sevens.png")


def _look_page(address: str, name: str, inputs: Mapping[str, str | Path]) -> str:
    """Return the address of the attention for some inputs; a file is part of it, as a data URL, or as it is if JSON."""
    values = {key: _content(value) if isinstance(value, Path) else value for key, value in inputs.items()}
    return page_address(address, f"look?{urlencode({'model': name, **values}, quote_via=quote)}")


def _content(path: Path) -> str:
    if path.suffix == ".json":
        return path.read_text(encoding="utf-8").strip()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
