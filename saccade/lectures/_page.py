"""A demonstration as one HTML file that needs nothing else."""

from __future__ import annotations

from html import escape
from pathlib import Path

import torch

from saccade.atomic_io import new_file
from saccade.comparison.charts import Line, chart, legend
from saccade.errors import ResourceError, UsageError
from saccade.lectures._row import Check, Demonstration, Heat, Item, Note, Plot, Row, Shown, Table
from saccade.look.draw import svg

STYLE = """
body{margin:0 auto;max-width:80rem;padding:1.5rem;font:16px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff}
h1{font-size:1.4rem}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}p{max-width:60rem}code{font-size:.95em}
table{border-collapse:collapse}th,td{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #8884}
td.number{text-align:right;font-variant-numeric:tabular-nums}figure{margin:0}svg{max-width:100%;height:auto}
.ok{color:#1a7f37}.failed{color:#c62828;font-weight:600}
svg.chart{width:46rem}.chart text{fill:currentColor;font-size:11px}.grid{stroke:#8884}.line{fill:none;stroke-width:2}
.legend{list-style:none;padding:0;display:flex;gap:1.2rem}.heat rect{shape-rendering:crispEdges;fill:#1a56c4}
.s0{color:#1a56c4}.s1{color:#c2410c}.s2{color:#0f766e}.s3{color:#7c3aed}.s4{color:#a16207}
.s0 .line,.s1 .line,.s2 .line,.s3 .line,.s4 .line{stroke:currentColor}.dot{fill:currentColor}
@media(prefers-color-scheme:dark){body{color:#e6e8eb;background:#15181c}.ok{color:#57d977}.failed{color:#ff8a80}
.s0{color:#6db1ff}.s1{color:#ff9e64}.s2{color:#4fd1c5}.s3{color:#c4a7ff}.s4{color:#e0c060}.heat rect{fill:#6db1ff}}
"""
HEAT_WIDTH, HEAT_HEIGHT = 1024, 12  # pixels of a matrix, and of a row of it


def page(row: Row, demonstration: Demonstration) -> str:
    """Return the demonstration of a row as HTML."""
    body = "".join(map(_render, demonstration.items))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{row.id}: {escape(row.title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{row.id}: {escape(row.title)}</h1>{body}{_checks(demonstration.checks)}"
        f"<p><code>{escape(row.command)}</code></p></body></html>"
    )


def write_page(row: Row, demonstration: Demonstration, path: Path) -> None:
    """Write the page of a row to a .html file."""
    if path.suffix.lower() != ".html":
        raise UsageError(f"--out must end on .html, but is '{path}'")
    try:
        with new_file(path) as file:
            file.write(page(row, demonstration).encode())
    except OSError as error:
        raise ResourceError(f"cannot write {path}: {error.strerror}; choose another file with --out") from error


def _render(item: Item) -> str:
    if isinstance(item, Note):
        return f"<p>{escape(item.text)}</p>"
    if isinstance(item, Table):
        return f"<h2>{escape(item.title)}</h2>{_table(item)}"
    if isinstance(item, Plot):
        return _plot(item)
    if isinstance(item, Heat):
        return f"<h2>{escape(item.title)}</h2>{_heat(item)}"
    return _map(item)


def _map(item: Shown) -> str:
    drawn = svg(item.attention, "", item.style) if item.figure is None else item.figure._repr_html_()
    return f"<h2>{escape(item.name)}</h2><figure><figcaption>{escape(item.about)}</figcaption>{drawn}</figure>"


def _plot(item: Plot) -> str:
    lines = [Line(name, number, tuple(points)) for number, (name, points) in enumerate(item.lines.items())]
    names = [(line.number, line.name) for line in lines]
    return f"<h2>{escape(item.title)}</h2>{chart(item.title, lines, item.x_label, item.y_label)}{legend(names)}"


def _table(item: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in item.columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(value)}</td>" for value in row) + "</tr>" for row in item.rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _checks(checks: list[Check]) -> str:
    rows = "".join(
        f'<tr><td class="{"ok" if check.passed else "failed"}">{"ok" if check.passed else "FAILED"}</td>'
        f"<td>{escape(check.statement)}</td><td>{escape(check.value)}</td><td>{escape(check.expected)}</td></tr>"
        for check in checks
    )
    return f"<h2>Checks</h2><table><tr><th></th><th>statement</th><th>value</th><th>expected</th></tr>{rows}</table>"


def _heat(item: Heat) -> str:
    """Return a matrix as rectangles, the darker the larger."""
    values = item.values
    low, high = values.min(), values.max()
    fractions = ((values - low) / torch.clamp(high - low, min=1e-12)).tolist()
    width = HEAT_WIDTH / values.shape[1]
    cells = "".join(
        f'<rect x="{column * width:.2f}" y="{row * HEAT_HEIGHT}" width="{width:.2f}" height="{HEAT_HEIGHT}" '
        f'fill-opacity="{fraction:.2f}"/>'
        for row, line in enumerate(fractions)
        for column, fraction in enumerate(line)
    )
    name = escape(f"{item.title}: from {low:.3g} (light) to {high:.3g} (dark)")
    size = f'viewBox="0 0 {HEAT_WIDTH} {HEAT_HEIGHT * len(fractions)}"'
    return f'<svg class="heat" {size} role="img" aria-label="{name}"><title>{name}</title>{cells}</svg>'
