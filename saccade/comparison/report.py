"""Report: one HTML file with everything a comparison found; it needs no network and runs no script."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import torch

from saccade.comparison.charts import Line, chart, legend, number, strip
from saccade.comparison.summary import NAMES, SCORES, digits, measures
from saccade.comparison.summary import summary as summary
from saccade.core.task import AttentionMap, Axis
from saccade.look import draw
from saccade.look.labels import visible

Model = dict[str, Any]
BAR = 28  # pixels of the highest bar
ROWS = 12  # evaluations in the table of the curves

MODELS_NOTE = """Best value of each score in bold. Tokens a second are those of training, without evaluations. Peak
memory is the resident memory of the model's own process. Steps to read n: what must wait for what while n source
tokens are read, by construction; the longest chain of operations was counted in the graph that autograd keeps. Sees:
source tokens whose gradient reaches the encoder's output for the middle one. One run for each model: small
differences may be chance."""
PROBE_NOTE = """What if the source has 1,000 tokens? Small models of each kind, 32 to 96 wide, learn to copy and to
reverse random symbols, short sequences first, then longer ones; no symbol stands twice in a sequence. Shown: the
share of symbols that are right when all before them are given (teacher forcing), on new sequences. A model that can
look at the source finds the neighbour of the symbol it wrote last; one that has a single vector for the whole source
must have kept everything in it. So that this is learnt within a minute, reading, writing and answering share one
table of symbols, the Transformers' self-attention sees two neighbours on each side, and the RNN scores by dot
product; attention to the source is free. With and without attention the RNN has the same shape."""
REACH_NOTE = """The gradient of the encoder's output for the middle one of 101 source tokens, by the token it comes
from. Full colour is the most, none nothing or less than a millionth of it; the scale between is
logarithmic."""
MEMORY_NOTE = """Bytes kept for the backward pass: written out, all N x N weights stay; the fused kernel keeps only
what grows with N."""


def page(result: dict[str, Any]) -> str:
    """The report as one HTML file."""
    style, job = _part("report.css"), result["run"]
    title = f"Architectures compared on {Path(job['data']).name}"
    models = list(enumerate(result["models"]))  # the number is the colour, also where another model has failed
    done = [(at, model) for at, model in models if "scores" in model]
    sections = [
        _overview(models),
        _lengths(done),
        _curves(done),
        _probe(models, job["probe_minutes"]),
        _reaches(done),
        _sentences(done, job),
        _memory(result["attention_memory"]),
        _about(job, done),
    ]
    return Template(_part("report.html")).substitute(
        title=html(title),
        style=style,
        style_hash=_hash(style),
        about=html(f"{job['created']}, {_budget(job)}, seed {job['seed']}, {job['machine']['device']}"),
        summary="".join(f"<li>{html(line)}</li>" for line in result["summary"]),
        sections="\n".join(section for section in sections if section),
    )


def html(text: object) -> str:
    """A text as HTML that shows it, whatever is in it: also halves of pairs and signs that write it backwards."""
    return escape(re.sub("[\ud800-\udfff\u202d\u202e\x00]", "\ufffd", str(text)))


def _part(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _title(name: str) -> str:
    return name[0].upper() + name[1:] if name.islower() else name  # chrF stays


def _budget(job: dict[str, Any]) -> str:
    settings = job["settings"]
    for name, word in (("steps", "steps"), ("epochs", "epochs"), ("minutes", "minutes")):
        if settings[name]:
            return f"{settings[name]:g} {word} for each model"
    return "5 minutes for each model"


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{html(title)}</h2>{''.join(parts)}</section>"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table of texts that are HTML already; the first column names the rows."""
    top = "".join(f'<th scope="col">{head}</th>' for head in heads)
    body = "".join(f'<tr><th scope="row">{row[0]}</th>{"".join(map(_cell, row[1:]))}</tr>' for row in rows)
    about = f"<caption>{html(caption)}</caption>" if caption else ""
    inner = f"{about}<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide" tabindex="0"><table>{inner}</table></div>'


def _cell(text: str) -> str:
    return text if text.startswith("<td") else f"<td>{text}</td>"


def _numbers(body: str) -> str:
    return f"<details><summary>The numbers</summary>{body}</details>"


def _legend(models: Sequence[tuple[int, Model]]) -> str:
    return legend([(at, _title(NAMES[model["name"]])) for at, model in models])


def _overview(models: Sequence[tuple[int, Model]]) -> str:
    """One row for each model."""
    done = [model for _, model in models if "scores" in model]
    names = measures(done)
    best: dict[str, set[float]] = {}
    for name in names:
        values = [model["scores"][name] for model in done]
        top = min(values) if name in ("token_error", "loss") else max(values)
        best[name] = {top} if len(set(values)) > 1 else set()
    heads = [
        "Model",
        *(html(_title(SCORES[name])) for name in names),
        "Parameters",
        "Target tokens/s",
        "All tokens/s",
        "Peak memory",
        "Steps done",
        "Steps to read n",
        f"Chain at {done[0]['reach']['of']}",
        f"Sees of {done[0]['reach']['of']}",
        f"DecoderState {done[0]['pairs']:,}",
    ]
    rows = []
    for _, model in models:
        if "scores" not in model:
            reason = html(model.get("failed", {}).get("train", "not trained yet"))
            rows.append(
                [html(_title(NAMES[model["name"]])), f'<td class="broken" colspan="{len(heads) - 1}">{reason}</td>']
            )
            continue
        scores = []
        for name in names:
            text = digits(name, model["scores"][name])
            scores.append(f'<td class="best">{text}</td>' if model["scores"][name] in best[name] else text)
        rows.append([html(_title(NAMES[model["name"]])), *scores, *_costs(model)])
    return _section("The models", table(heads, rows), f'<p class="note">{html(MODELS_NOTE)}</p>')


def _costs(model: Model) -> list[str]:
    return [
        f"{model['parameters']:,}",
        f"{model['target_tokens_per_second']:,.0f}",
        f"{model['tokens_per_second']:,.0f}",
        f"{model['peak_bytes'] / 1e6:,.0f} MB",
        f"{model['steps']:,}",
        html(model["sequential"]["steps"]),
        f"{model['chain'][str(model['reach']['of'])]:,}",
        f"{model['reach']['seen']}",
        f"{model['translating_seconds']:.1f} s",
    ]


def _lengths(done: Sequence[tuple[int, Model]]) -> str:
    """Quality against the length of the source."""
    score = done[0][1]["score"]
    parts, title = [], "Quality by source length"
    for name in done[0][1]["by_length"]:
        classes = done[0][1]["by_length"][name]
        spans = [_span(row) for row in classes]
        lines = []
        for at, model in done:
            points = tuple((_middle(row), row["value"]) for row in model["by_length"][name])
            lines.append(Line(_title(NAMES[model["name"]]), at, points))
        drawn = chart(f"{SCORES[name]} by source length", lines, "source tokens", SCORES[name])
        rows = [
            [html(_title(NAMES[model["name"]])), *(f"{row['value']:.1f}" for row in model["by_length"][name])]
            for _, model in done
        ]
        rows.append(["pairs", *(f"{row['count']:,}" for row in classes)])
        listed = table(["Source tokens", *map(html, spans)], rows, SCORES[name])
        parts.append(f"<figure>{drawn}{listed}</figure>")
    about = f"{SCORES[score]} of classes of validation pairs, chosen so that each but the last holds about a fifth."
    return _section(title, f"<p>{html(about)}</p>", _legend(done), f'<div class="charts">{"".join(parts)}</div>')


def _span(row: dict[str, Any]) -> str:
    return f"{row['from']}\u2011{row['to'] - 1}" if row["to"] - 1 > row["from"] else str(row["from"])


def _middle(row: dict[str, Any]) -> float:
    return float(row["from"] + row["to"] - 1) / 2


def _curves(done: Sequence[tuple[int, Model]]) -> str:
    """Validation score and loss against minutes and tokens."""
    score, figures = done[0][1]["score"], []
    for what in (score, "loss"):
        for along, words in (("minutes", "minutes"), ("tokens", "target tokens")):
            lines = [
                Line(_title(NAMES[model["name"]]), at, tuple((one[along], one[what]) for one in model["curve"]))
                for at, model in done
            ]
            title = f"{SCORES[what]} against {words}"
            figures.append(f"<figure>{chart(title, lines, words, SCORES[what])}</figure>")
    rows = []
    for _, model in done:
        every = max(1, -(-len(model["curve"]) // ROWS))
        for one in model["curve"][::-1][::every][::-1]:
            cells = [
                f"{one['step']:,}",
                f"{one['minutes']:.2f}",
                f"{one['tokens']:,}",
                f"{one[score]:.1f}",
                f"{one['loss']:.3f}",
            ]
            rows.append([html(_title(NAMES[model["name"]])), *cells])
    listed = table(["Model", "Step", "Minutes", "Target tokens", html(SCORES[score]), "Loss"], rows)
    about = "On a fixed sample of the validation pairs, translated greedily; the table above has all, by beam search."
    return _section(
        "Learning curves",
        f"<p>{html(about)}</p>",
        _legend(done),
        f'<div class="charts">{"".join(figures)}</div>',
        _numbers(listed),
    )


def _probe(models: Sequence[tuple[int, Model]], minutes: float) -> str:
    """Copying and reversing at growing lengths."""
    figures, tables = [], []
    for kind, title in (("copy", "Copying"), ("reverse", "Reversing")):
        lines, rows, lengths = [], [], []
        for at, model in models:
            if kind in model:
                found = {int(length): value for length, value in model[kind]["accuracy"].items()}
                lengths, name = sorted(found), _title(NAMES[model["name"]])
                lines.append(Line(name, at, tuple((length, found[length]) for length in lengths)))
                rows.append(
                    [
                        html(name),
                        *(f"{found[x]:.1f}" for x in lengths),
                        f"{model[kind]['steps']:,}",
                        f"{model[kind]['minutes']:.2f}",
                    ]
                )
        if lines:
            drawn = chart(title, lines, "symbols (logarithmic)", "% right", marks=lengths, logarithmic=True, most=100)
            listed = table(["% right at", *(f"{length:,}" for length in lengths), "Steps", "Minutes"], rows, title)
            tables.append(listed)
            figures.append(f"<figure><figcaption>{title}</figcaption>{drawn}</figure>")
    if not figures:
        return ""
    probed = [(at, model) for at, model in models if "copy" in model or "reverse" in model]
    about = f"{PROBE_NOTE} {minutes / 2:g} minutes of training for each model and task."
    return _section(
        "The bottleneck",
        f"<p>{html(about)}</p>",
        _legend(probed),
        f'<div class="charts">{"".join(figures)}</div>',
        *tables,
    )


def _reaches(done: Sequence[tuple[int, Model]]) -> str:
    """Which source tokens the middle one knows of."""
    rows, listed = [], []
    for _, model in done:
        reach, name = model["reach"], _title(NAMES[model["name"]])
        title = f"{name}: {reach['seen']} of {reach['of']} source tokens reach the middle one"
        rows.append(f"<div>{html(name)}</div>{strip(title, reach['shares'])}")
        listed.append([html(name), f"{reach['seen']}", f"{reach['half']}", f"{reach['most']}"])
    numbers = table(["Model", "Tokens that reach it", "Half of the gradient from", "95% of it from"], listed)
    return _section(
        "Who sees whom", f"<p>{html(REACH_NOTE)}</p>", f'<div class="strips">{"".join(rows)}</div>', numbers
    )


def _sentences(done: Sequence[tuple[int, Model]], job: dict[str, Any]) -> str:
    """The same sentence under each model."""
    given = f'<blockquote dir="auto">{html(job["sentence"])}</blockquote>'
    if job["reference"]:
        given += f'<p class="note">Reference: <span dir="auto">{html(job["reference"])}</span></p>'
    found = []
    for _, model in done:
        one = model["sentence"]
        steps = "".join(_bars(reading) for reading in one["steps"])
        found.append(
            f'<div><h3>{html(_title(NAMES[model["name"]]))}</h3><p dir="auto">{html(one["output"]) or "(nothing)"}</p>'
            f"{_map(one['alignment'], NAMES[model['name']])}{steps}</div>"
        )
    return _section("One sentence", given, f'<div class="models">{"".join(found)}</div>')


def _map(seen: dict[str, Any] | None, name: str) -> str:
    if seen is None:
        return '<p class="none">No attention: one vector for the whole source.</p>'
    weights = torch.tensor(seen["weights"]).reshape(1, len(seen["rows"]), len(seen["columns"]))
    rows, columns = Axis("target", tuple(seen["rows"])), Axis("source", tuple(seen["columns"]))
    drawn = draw.svg(AttentionMap(seen["name"], weights, rows, columns), f"{name}: {seen['name']}")
    return f'<div class="map" tabindex="0">{drawn.replace(f"<style>{draw.STYLE}</style>", "")}</div>'


def _bars(reading: dict[str, Any]) -> str:
    """A number for each token, as a small bar over it."""
    top = max((abs(value) for value in reading["values"]), default=0.0) or 1.0
    bars = []
    for label, value in zip(reading["labels"], reading["values"], strict=True):
        high = abs(value) / top * BAR
        bar = f'<rect y="{BAR - high:.1f}" width="14" height="{high:.1f}" rx="2"/>'
        bar = f'<svg width="14" height="{BAR}" aria-hidden="true">{bar}</svg>'
        bars.append(f"<div><small>{value:.3g}</small>{bar}<span>{html(visible(label))}</span></div>")
    return f'<h3>{html(reading["name"])}</h3><div class="bars" dir="auto">{"".join(bars)}</div>'


def _memory(memory: dict[str, Any] | None) -> str:
    """What attention keeps for its backward pass."""
    if not memory:
        return ""
    rows, before = [], None
    for row in memory["rows"]:
        growth = [f"x {row[name] / before[name]:.1f}" if before else "" for name in ("plain", "fused")]
        sizes = [f"{row[name] / 1e6:,.2f} MB" for name in ("plain", "fused")]
        rows.append(
            [f"{row['tokens']:,}", sizes[0], growth[0], sizes[1], growth[1], f"{row['plain'] / row['fused']:,.0f}"]
        )
        before = row
    heads = ["Tokens", "Plain", "against half", "Fused kernel", "against half", "Plain / fused"]
    about = f"One attention of {memory['heads']} heads of width {memory['width']}, in float32. {MEMORY_NOTE}"
    return _section("Memory of attention", f"<p>{html(about)}</p>", table(heads, rows))


def _about(job: dict[str, Any], done: Sequence[tuple[int, Model]]) -> str:
    """What was run, where and with what."""
    machine = job["machine"]
    facts = {
        "File": job["data"],
        "Settings": " ".join(job["words"]),
        "Command": job["command"],
        "DataFile": "; ".join(job["notes"]),
        "Vocabulary": "the same files for every model: "
        + ", ".join(f"{name} {value[:12]}" for name, value in job["assets"].items()),
        "Training pairs": f"fingerprint {job['fingerprint']}, the same for every model",
        "Probe": f"{job['probe_minutes']:g} minutes for each model" if job["probe_minutes"] else "left out",
        "Scores": "; ".join(f"{name}: {value}" for name, value in done[0][1]["signatures"].items()),
        "Versions": f"saccade {machine['saccade']}, torch {machine['torch']}, Python {machine['python']}",
        "Machine": f"{machine['processor']}; {machine['device']}; {machine['system']}",
        "Begun": job["created"],
        "Seed": number(job["seed"]),
    }
    items = "".join(f"<dt>{html(name)}</dt><dd>{html(value)}</dd>" for name, value in facts.items() if value)
    return _section("What was run", f'<dl class="facts">{items}</dl>')
