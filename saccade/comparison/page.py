"""Parts of a report: one HTML file without network access or scripts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from saccade.comparison.charts import Line, chart, legend, number

Model = dict[str, Any]


def document(result: dict[str, Any], sections: Sequence[str], *, style: str = "", images: bool = False) -> str:
    """Return the report as one HTML file; `style` follows the common rules, `images` allows embedded images."""
    settings = result["run"]
    title = f"Comparison of architectures on {Path(settings['data']).name}"
    about = f"{settings['created']}, {_budget(settings)}, seed {settings['seed']}, {settings['machine']['device']}"
    return page(title, about, result["summary"], sections, style=style, images=images)


def page(
    title: str,
    about: str,
    summary: Sequence[str],
    sections: Sequence[str],
    *,
    style: str = "",
    images: bool = False,
) -> str:
    """Return one HTML file; title, about and summary are texts, sections are HTML."""
    style = _part("report.css") + style
    return Template(_part("report.html")).substitute(
        title=html(title),
        style=style,
        style_hash=_hash(style),
        images=" img-src data:;" if images else "",
        about=html(about),
        summary="".join(f"<li>{html(line)}</li>" for line in summary),
        sections="\n".join(section for section in sections if section),
    )


def html(text: object) -> str:
    """Escape a text for HTML; lone surrogates and bidirectional overrides are replaced."""
    return escape(re.sub("[\ud800-\udfff\u202d\u202e\x00]", "\ufffd", str(text)))


def _part(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _budget(settings: dict[str, Any]) -> str:
    training = settings["settings"]
    for name in ("steps", "epochs", "minutes"):
        if training[name]:
            return f"{training[name]:g} {name} per model"
    return "5 minutes per model"


def capitalize(name: str) -> str:
    """Return a name with a capital letter, unless it has one already: chrF stays."""
    return name[0].upper() + name[1:] if name.islower() else name


def section(title: str, *parts: str) -> str:
    return f"<section><h2>{html(title)}</h2>{''.join(parts)}</section>"


def paragraph(text: str) -> str:
    return f"<p>{html(text)}</p>"


def note(text: str) -> str:
    return f'<p class="note">{html(text)}</p>'


def side_by_side(parts: Sequence[str]) -> str:
    """Return charts side by side."""
    return f'<div class="charts">{"".join(parts)}</div>'


def table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Return a table of cells that are HTML already; the first column names the rows."""
    top = "".join(f'<th scope="col">{head}</th>' for head in header)
    body = "".join(f'<tr><th scope="row">{row[0]}</th>{"".join(map(_cell, row[1:]))}</tr>' for row in rows)
    title = f"<caption>{html(caption)}</caption>" if caption else ""
    inner = f"{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide" tabindex="0"><table>{inner}</table></div>'


def _cell(text: str) -> str:
    return text if text.startswith("<td") else f"<td>{text}</td>"


def best_values(values: Sequence[float], higher_is_better: bool) -> set[float]:
    """Return the best of the values; none if all are equal."""
    return {max(values) if higher_is_better else min(values)} if len(set(values)) > 1 else set()


def best_cell(text: str, is_best: bool) -> str:
    """Return a cell, bold if it is the best of its column or row."""
    return f'<td class="best">{text}</td>' if is_best else text


def failed_cell(model: Model, columns: int) -> str:
    """Return a cell across the row of a model that has no results, with the reason."""
    reason = html(model.get("failed", {}).get("train", "not trained yet"))
    return f'<td class="broken" colspan="{columns}">{reason}</td>'


def collapsed(body: str) -> str:
    """Return numbers that are shown on request."""
    return f"<details><summary>Show the numbers</summary>{body}</details>"


def models_legend(models: Sequence[tuple[int, Model]], names: Mapping[str, str]) -> str:
    """Return the colour and the marker of each model."""
    return legend([(at, capitalize(names[model["name"]])) for at, model in models])


def learning_curves(
    done: Sequence[tuple[int, Model]], names: Mapping[str, str], metrics: Mapping[str, str], axes: Sequence[str]
) -> str:
    """Return a chart of each metric, by its key and title, against each axis."""
    figures = []
    for metric, title in metrics.items():
        for axis in axes:
            lines = [
                Line(
                    capitalize(names[model["name"]]),
                    at,
                    tuple((point[axis], point[metric]) for point in model["curve"]),
                )
                for at, model in done
            ]
            figures.append(f"<figure>{chart(f'{title} against {axis}', lines, axis, title)}</figure>")
    return side_by_side(figures)


def every_nth(points: Sequence[Any], count: int) -> list[Any]:
    """Return about `count` points at regular intervals, the last one included."""
    every = max(1, -(-len(points) // count))
    return list(points[::-1][::every][::-1])


def setup(facts: Mapping[str, str], settings: dict[str, Any]) -> str:
    """Return the section of the settings and the machine; `facts` are those of this kind of comparison."""
    machine = settings["machine"]
    facts = {
        "File": settings["data"],
        "Settings": " ".join(settings["overrides"]),
        "Command": settings["command"],
        "Data": "; ".join(settings["notes"]),
        **facts,
        "Versions": f"saccade {machine['saccade']}, torch {machine['torch']}, Python {machine['python']}",
        "Machine": f"{machine['processor']}; {machine['device']}; {machine['system']}",
        "Started": settings["created"],
        "Seed": number(settings["seed"]),
    }
    items = "".join(f"<dt>{html(name)}</dt><dd>{html(value)}</dd>" for name, value in facts.items() if value)
    return section("Setup", f'<dl class="facts">{items}</dl>')
