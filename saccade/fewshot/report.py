"""The report of a few-shot experiment: a table, a chart, a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from saccade.atomic_io import write_text
from saccade.comparison.charts import Line, chart, legend
from saccade.comparison.page import html, note, page, section, side_by_side, table
from saccade.core.serialize import dump_json
from saccade.errors import UsageError
from saccade.fewshot.experiment import Result

SUFFIXES = (".html", ".svg")
TITLES = {"exact": "exact match", "accuracy": "accuracy", "chrf": "chrF"}
# The colours of the report for a chart that stands alone.
SVG_STYLE = (
    "<style>svg{font:12px system-ui,sans-serif;background:#fff}text{fill:#5a6470}.grid{stroke:#d5dae0;fill:none}"
    ".line{fill:none;stroke-width:2}.dot{stroke:#fff}.s0 .line{stroke:#5a6470}.s0 .dot{fill:#5a6470}"
    ".s3 .line{stroke:#1a56c4}.s3 .dot{fill:#1a56c4}.s1 .line{stroke:#c2410c}.s1 .dot{fill:#c2410c}</style>"
)
PAGE_STYLE = ".texts th,.texts td{white-space:normal;text-align:start;font-weight:400}pre{white-space:pre-wrap}"
MEAN, LOWEST, HIGHEST = 3, 0, 1  # numbers of lines: colour and marker


def text_table(result: Result) -> list[str]:
    """Return the scores by number of examples as lines."""
    rows, names = result.rows(), list(result.baseline)
    header = ["examples", *(TITLES[name] for name in names)]
    cells = [header, *([str(row["examples"]), *(_cell(row, name) for name in names)] for row in rows)]
    cells.append([result.baseline_name, *(f"{result.baseline[name]:.1f}" for name in names)])
    widths = [max(len(row[at]) for row in cells) for at in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    if result.trial.orders > 1:
        lines.append(f"mean over {result.trial.orders} orders of the examples, and the range")
    return lines


def text_answers(result: Result) -> list[str]:
    """Return the answers with the most examples, in the first order, as lines."""
    last = result.answers[-1].count
    records = [record for record in result.records() if (record["examples"], record["order"]) == (last, 0)]
    marks = {True: "correct", False: "wrong"}
    return [
        f"answers with {last} example{'' if last == 1 else 's'}:",
        *(f"  {record['input']} -> {record['answer']} ({marks[record['correct']]})" for record in records),
    ]


def write_answers(result: Result, path: Path) -> None:
    """Write every answer as a line of JSON."""
    write_text(path, "".join(f"{dump_json(record)}\n" for record in result.records()))


def check_suffix(path: Path) -> None:
    """Refuse a report of another kind before anything is computed."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"a report must end with {' or '.join(SUFFIXES)}, but is '{path.name}'")


def write_report(result: Result, path: Path, about: str) -> None:
    """Write the page, or the chart of the first score alone."""
    if path.suffix.lower() == ".svg":
        first = next(iter(result.baseline))
        drawing = _chart(result, first).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        write_text(path, drawing.replace("<title>", f"{SVG_STYLE}<title>", 1) + "\n")
        return
    write_text(path, _page(result, about))


def _page(result: Result, about: str) -> str:
    trial, rows, names = result.trial, result.rows(), list(result.baseline)
    last = result.answers[-1].count
    shown = next(answers for answers in result.answers if answers.count == last)
    summary = [
        f"{_cell(row, names[0])} {TITLES[names[0]]} with {row['examples']} example{'' if row['examples'] == 1 else 's'}"
        for row in (rows[0], rows[-1])
    ]
    summary.append(f"{result.baseline[names[0]]:.1f} by {result.baseline_name}")
    figures = [f"<figure>{_chart(result, name)}</figure>" for name in names]
    lines = [(MEAN, "mean")] + ([(LOWEST, "lowest order"), (HIGHEST, "highest order")] if trial.orders > 1 else [])
    scores = [[str(row["examples"]), *(_cell(row, name) for name in names)] for row in rows]
    scores.append([html(result.baseline_name), *(f"{result.baseline[name]:.1f}" for name in names)])
    records = [record for record in result.records() if (record["examples"], record["order"]) == (last, shown.order)]
    answers = [
        [html(record["input"]), html(record["expected"]), html(record["answer"]), "yes" if record["correct"] else "no"]
        for record in records
    ]
    prompt = trial.template.prompt(trial.chosen(last, shown.order), trial.test[0][0])
    sections = [
        section(
            "Score by number of examples",
            legend(lines),
            side_by_side(figures),
            table(["examples", *(TITLES[name] for name in names)], scores),
            *(note(text) for text in result.notes),
        ),
        section(
            f"Answers with {last} examples",
            f'<div class="texts">{table(["input", "expected", "answer", "correct"], answers)}</div>',
        ),
        section("First prompt", f"<pre>{html(prompt)}</pre>"),
    ]
    return page("Few-shot prompts", about, summary, sections, style=PAGE_STYLE)


def _chart(result: Result, name: str) -> str:
    rows = result.rows()
    lines = [Line("mean", MEAN, tuple((row["examples"], row[name]) for row in rows))]
    if result.trial.orders > 1:
        ends = {"lowest order": (LOWEST, 0), "highest order": (HIGHEST, 1)}
        lines += [
            Line(title, number, tuple((row["examples"], row[f"{name}_range"][at]) for row in rows))
            for title, (number, at) in ends.items()
        ]
    return chart(f"{TITLES[name]} against the number of examples", lines, "examples", TITLES[name], y_max=100)


def _cell(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_range"]
    spread = f" ({low:.1f} to {high:.1f})" if row["orders"] > 1 else ""
    return f"{row[name]:.1f}{spread}"
