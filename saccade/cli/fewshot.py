"""The command that gives a task to a language model by examples: fewshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from saccade.cli.group import (
    checkpoint_option,
    dtype_option,
    echo,
    json_option,
    log,
    main,
    print_json,
    progress_bar,
    runs_option,
    task_option,
)
from saccade.errors import UsageError

SHOWN = 11  # lines of answers that are printed


@main.command()
@click.argument("examples", type=click.Path(path_type=Path), required=False)
@click.argument("test", type=click.Path(path_type=Path), required=False)
@click.option("--model", "ref", required=True, help="Language model: a run, or a pretrained model.")
@click.option("--demo", is_flag=True, help="Use the examples of the GPT-3 paper: poor English to good English.")
@click.option("--template", default="", help="An example: default 'Input: {input}\\nOutput: {output}'.")
@click.option("--instruction", default="", help="Text before the examples.")
@click.option("--counts", default="", metavar="0,1,2,...", help="Numbers of examples; default: powers of 2, and all.")
@click.option("--orders", default=1, show_default=True, help="Orders of the examples; the first is that of the file.")
@click.option("--seed", default=1, show_default=True, help="Seed of the other orders.")
@click.option("--source", default="", help="Column of the input.")
@click.option("--target", default="", help="Column of the output.")
@click.option("--encoding", help="Character encoding of the files, if not UTF-8.")
@click.option("--out", type=click.Path(path_type=Path), help="Write a report: .html, or the chart alone: .svg.")
@click.option("--answers", type=click.Path(path_type=Path), help="Write every answer to a .jsonl file.")
@checkpoint_option
@dtype_option
@runs_option
@task_option
@json_option
def fewshot(
    examples: Path | None, test: Path | None, ref: str, out: Path | None, answers: Path | None, **others: Any
) -> None:
    """Give a language model a task by examples, and score it.

    EXAMPLES and TEST are tables with two columns, inputs and outputs (tsv, csv, jsonl). The examples are written before
    each input of TEST, and the model continues, greedily; the score is shown against the number of examples. What does
    not fit the context is left out, and named.

    \b
    Examples:
      saccade fewshot --demo --model smollm2
      saccade fewshot examples.tsv test.tsv --model smollm2 --orders 3 --out report.html
      saccade fewshot mails.csv test.csv --model smollm2 --template "Mail: {input}\\nKind: {output}" --json
    """
    from saccade import api
    from saccade.fewshot import experiment, report

    trial = _trial(examples, test, others)
    as_json = others.pop("as_json")
    if out is not None:
        report.check_suffix(out)
    model = api.load(ref, log=log, **others)
    with progress_bar() as bar:
        result = experiment.run(trial, model.engine(), progress=lambda fraction: bar.on_progress("answering", fraction))
    for note in result.notes:
        log(note)
    if answers is not None:
        report.write_answers(result, answers)
        log(f"wrote {answers}")
    if out is not None:
        report.write_report(result, out, f"{model.name}, {len(trial.test)} test rows, greedy")
        log(f"wrote {out}")
    if as_json:
        baseline = {"name": result.baseline_name, **result.baseline}
        print_json({"scores": result.rows(), "baseline": baseline, "notes": list(result.notes)})
        return
    for line in [*report.text_table(result), "", *report.text_answers(result)[:SHOWN]]:
        echo(line)


def _trial(examples: Path | None, test: Path | None, others: dict[str, Any]) -> Any:
    """Return what is tried, and remove its options from `others`."""
    from saccade.fewshot.experiment import Trial
    from saccade.fewshot.prompts import DEMO_EXAMPLES, DEMO_TEMPLATE, DEMO_TEST, TEMPLATE, PromptTemplate, read_examples

    columns = {name: others.pop(name) for name in ("source", "target", "encoding")}
    text = others.pop("template").replace("\\n", "\n")
    demo, instruction = others.pop("demo"), others.pop("instruction")
    plan = {"counts": _counts(others.pop("counts")), "orders": others.pop("orders"), "seed": others.pop("seed")}
    if demo:
        if examples is not None:
            raise UsageError("--demo has examples and test rows of its own; leave out EXAMPLES and TEST")
        template = PromptTemplate(text or DEMO_TEMPLATE, instruction)
        return Trial(DEMO_EXAMPLES, DEMO_TEST, template, **plan)
    if examples is None or test is None:
        raise UsageError("EXAMPLES and TEST must be two files, but one is missing; or try --demo")
    template = PromptTemplate(text or TEMPLATE, instruction)
    return Trial(read_examples(examples, **columns), read_examples(test, **columns), template, **plan)


def _counts(text: str) -> tuple[int, ...]:
    """Return the numbers of a list with commas."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    wrong = next((part for part in parts if not part.isdecimal() or len(part) > 9), None)
    if wrong is not None:
        raise UsageError(f"--counts must be whole numbers with commas, such as 0,1,2,4, but one is '{wrong}'")
    return tuple(map(int, parts))
