"""Report of a comparison of translation models as one HTML file, without network access or scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from saccade.comparison.charts import Line, chart, strip
from saccade.comparison.page import (
    Model,
    best_cell,
    best_values,
    capitalize,
    collapsed,
    document,
    every_nth,
    failed_cell,
    html,
    learning_curves,
    models_legend,
    note,
    paragraph,
    section,
    setup,
    side_by_side,
    table,
)
from saccade.comparison.summary import NAMES, SCORES, format_score, score_names
from saccade.core import AttentionMap, Role, TokenAxis
from saccade.look import draw, ramps
from saccade.look.labels import visible
from saccade.tasks._seq2seq.settings import METRICS

BAR = 28  # height of the highest bar in pixels
ROWS = 12  # evaluations in the table of the curves

MODELS_NOTE = """The best value of each score is bold. Tokens per second are measured during training, without
evaluations. Peak memory is the resident memory of the model's own process. Sequential steps: how many steps must be
computed one after the other to encode n source tokens, by construction; the longest chain of dependent operations was
counted in the autograd graph. Reach: source tokens with a non-zero gradient to the encoder output of the middle one.
One run per model: small differences may be noise."""
PROBE_NOTE = """Can an architecture retain a source of 1,000 tokens? Small models of each kind, 32 to 96 wide, learn to
copy and to reverse random symbols, short sequences first, then longer ones; no symbol occurs twice in a sequence. The
charts show the accuracy under teacher forcing on new sequences. With attention a model can find the neighbour of the
last symbol; with one fixed vector for the entire source it must memorize everything. To make this learnable
within a minute, source embedding, target embedding and output layer are tied, the self-attention of the Transformers
has a window of two neighbours on each side, and the RNN uses dot-product attention; cross-attention is unrestricted.
The RNN has the same shape with and without attention."""
REACH_NOTE = """Gradient of the encoder output of the middle token of 101 with respect to each source token. The colour
scale is logarithmic over six powers of ten."""
MEMORY_NOTE = """Bytes saved for the backward pass: plain attention saves all N x N weights, the fused kernel only
tensors that grow with N."""


def page(result: dict[str, Any]) -> str:
    """Return the report as one HTML file."""
    settings = result["run"]
    models = list(enumerate(result["models"]))  # the number decides the colour, even if another model has failed
    done = [(at, model) for at, model in models if "scores" in model]
    sections = [
        _overview(models),
        _lengths(done),
        _curves(done),
        _probe(models, settings["probe_minutes"]),
        _reaches(done),
        _sentences(done, settings),
        _memory(result["attention_memory"]),
        _about(settings, done),
    ]
    return document(result, sections, style=ramps.css())


def _name(model: Model) -> str:
    return capitalize(NAMES[model["name"]])


def _legend(models: Sequence[tuple[int, Model]]) -> str:
    return models_legend(models, NAMES)


def _overview(models: Sequence[tuple[int, Model]]) -> str:
    """Return one row for each model."""
    done = [model for _, model in models if "scores" in model]
    names = score_names(done)
    best = {
        name: best_values([model["scores"][name] for model in done], bool(METRICS[name].higher_is_better))
        for name in names
    }
    header = [
        "Model",
        *(html(capitalize(SCORES[name])) for name in names),
        "Parameters",
        "Target tokens/s",
        "All tokens/s",
        "Peak memory",
        "Steps",
        "Sequential steps",
        f"Chain at {done[0]['reach']['of']}",
        f"Reach of {done[0]['reach']['of']}",
        f"Translating {done[0]['pairs']:,}",
    ]
    rows = []
    for _, model in models:
        if "scores" not in model:
            rows.append([html(_name(model)), failed_cell(model, len(header) - 1)])
            continue
        values = model["scores"]
        scores = [best_cell(format_score(name, values[name]), values[name] in best[name]) for name in names]
        rows.append([html(_name(model)), *scores, *_costs(model)])
    return section("Models", table(header, rows), note(MODELS_NOTE))


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
    """Return the scores by source length."""
    score = done[0][1]["score"]
    parts, title = [], "Quality by source length"
    for name in done[0][1]["by_length"]:
        classes = done[0][1]["by_length"][name]
        spans = [_span(row) for row in classes]
        lines = []
        for at, model in done:
            points = tuple((_middle(row), row["value"]) for row in model["by_length"][name])
            lines.append(Line(_name(model), at, points))
        drawn = chart(f"{SCORES[name]} by source length", lines, "source tokens", SCORES[name])
        rows = [[html(_name(model)), *(f"{row['value']:.1f}" for row in model["by_length"][name])] for _, model in done]
        rows.append(["pairs", *(f"{row['count']:,}" for row in classes)])
        listed = table(["Source tokens", *map(html, spans)], rows, SCORES[name])
        parts.append(f"<figure>{drawn}{listed}</figure>")
    about = f"{SCORES[score]} by class of source length; each class but the last two has about a fifth of the pairs."
    return section(title, paragraph(about), _legend(done), side_by_side(parts))


def _span(row: dict[str, Any]) -> str:
    return f"{row['from']}\u2011{row['to'] - 1}" if row["to"] - 1 > row["from"] else str(row["from"])


def _middle(row: dict[str, Any]) -> float:
    return float(row["from"] + row["to"] - 1) / 2


def _curves(done: Sequence[tuple[int, Model]]) -> str:
    """Return the charts of validation score and loss against minutes and tokens."""
    score, rows = done[0][1]["score"], []
    for _, model in done:
        for point in every_nth(model["curve"], ROWS):
            cells = [
                f"{point['step']:,}",
                f"{point['minutes']:.2f}",
                f"{point['tokens']:,}",
                f"{point[score]:.1f}",
                f"{point['loss']:.3f}",
            ]
            rows.append([html(_name(model)), *cells])
    listed = table(["Model", "Step", "Minutes", "Tokens", html(SCORES[score]), "Loss"], rows)
    about = (
        "On a fixed sample of the validation pairs, decoded greedily; the table above is of all pairs, by beam search."
    )
    metrics = {name: SCORES[name] for name in (score, "loss")}
    drawn = learning_curves(done, NAMES, metrics, ("minutes", "tokens"))
    return section("Learning curves", paragraph(about), _legend(done), drawn, collapsed(listed))


def _probe(models: Sequence[tuple[int, Model]], minutes: float) -> str:
    """Return the charts of copying and reversing by length."""
    figures, tables = [], []
    for kind, title in (("copy", "Copying"), ("reverse", "Reversing")):
        lines, rows, lengths = [], [], []
        for at, model in models:
            if kind in model:
                accuracy = {int(length): value for length, value in model[kind]["accuracy"].items()}
                lengths, name = sorted(accuracy), _name(model)
                lines.append(Line(name, at, tuple((length, accuracy[length]) for length in lengths)))
                rows.append(
                    [
                        html(name),
                        *(f"{accuracy[length]:.1f}" for length in lengths),
                        f"{model[kind]['steps']:,}",
                        f"{model[kind]['minutes']:.2f}",
                    ]
                )
        if lines:
            drawn = chart(
                title, lines, "symbols (logarithmic)", "accuracy (%)", x_ticks=lengths, logarithmic=True, y_max=100
            )
            listed = table(["Accuracy (%) at", *(f"{length:,}" for length in lengths), "Steps", "Minutes"], rows, title)
            tables.append(listed)
            figures.append(f"<figure><figcaption>{title}</figcaption>{drawn}</figure>")
    if not figures:
        return ""
    probed = [(at, model) for at, model in models if "copy" in model or "reverse" in model]
    about = f"{PROBE_NOTE} Each model trains {minutes / 2:g} minutes per task."
    return section(
        "Fixed-vector bottleneck",
        paragraph(about),
        _legend(probed),
        side_by_side(figures),
        *tables,
    )


def _reaches(done: Sequence[tuple[int, Model]]) -> str:
    """Return which source tokens influence the middle one."""
    rows, listed = [], []
    for _, model in done:
        reach, name = model["reach"], _name(model)
        title = f"{name}: {reach['seen']} of {reach['of']} source tokens influence the middle one"
        rows.append(f"<div>{html(name)}</div>{strip(title, reach['fractions'])}")
        listed.append([html(name), f"{reach['seen']}", f"{reach['half']}", f"{reach['most']}"])
    numbers = table(["Model", "Tokens with influence", "Tokens with 50% of the gradient", "Tokens with 95%"], listed)
    return section(
        "Receptive field of the encoder",
        paragraph(REACH_NOTE),
        f'<div class="strips">{"".join(rows)}</div>',
        numbers,
    )


def _sentences(done: Sequence[tuple[int, Model]], settings: dict[str, Any]) -> str:
    """Return the translations and alignments of one sentence by all models."""
    source = f'<blockquote dir="auto">{html(settings["sentence"])}</blockquote>'
    if settings["reference"]:
        source += f'<p class="note">Reference: <span dir="auto">{html(settings["reference"])}</span></p>'
    translations = []
    for _, model in done:
        sentence = model["sentence"]
        steps = "".join(_bars(scores) for scores in sentence["steps"])
        output = html(sentence["output"]) or "(empty)"
        translations.append(
            f'<div><h3>{html(_name(model))}</h3><p dir="auto">{output}</p>'
            f"{_map(sentence['alignment'], NAMES[model['name']])}{steps}</div>"
        )
    return section("Example", source, f'<div class="models">{"".join(translations)}</div>')


def _map(alignment: dict[str, Any] | None, name: str) -> str:
    if alignment is None:
        return '<p class="none">No attention: one vector for the entire source.</p>'
    weights = torch.tensor(alignment["weights"]).reshape(1, len(alignment["rows"]), len(alignment["columns"]))
    rows = TokenAxis(Role.TARGET, tuple(alignment["rows"]))
    columns = TokenAxis(Role.SOURCE, tuple(alignment["columns"]))
    drawn = draw.svg(AttentionMap(alignment["name"], weights, rows, columns), f"{name}: {alignment['name']}")
    return f'<div class="map" tabindex="0">{drawn.replace(f"<style>{draw.STYLE}{ramps.css()}</style>", "")}</div>'


def _bars(scores: dict[str, Any]) -> str:
    """Return a number for each token as a small bar above it."""
    top = max((abs(value) for value in scores["values"]), default=0.0) or 1.0
    bars = []
    for label, value in zip(scores["labels"], scores["values"], strict=True):
        height = abs(value) / top * BAR
        bar = f'<rect y="{BAR - height:.1f}" width="14" height="{height:.1f}" rx="2"/>'
        bar = f'<svg width="14" height="{BAR}" aria-hidden="true">{bar}</svg>'
        bars.append(f"<div><small>{value:.3g}</small>{bar}<span>{html(visible(label))}</span></div>")
    return f'<h3>{html(scores["name"])}</h3><div class="bars" dir="auto">{"".join(bars)}</div>'


def _memory(memory: dict[str, Any] | None) -> str:
    """Return the memory that attention needs for its backward pass."""
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
    header = ["Tokens", "Plain", "growth", "Fused kernel", "growth", "Plain / fused"]
    about = f"One attention of {memory['heads']} heads of width {memory['width']}, in float32. {MEMORY_NOTE}"
    return section("Memory of attention", paragraph(about), table(header, rows))


def _about(settings: dict[str, Any], done: Sequence[tuple[int, Model]]) -> str:
    """Return the data, settings and machine of the comparison."""
    facts = {
        "Vocabulary": "the same files for every model: "
        + ", ".join(f"{name} {value[:12]}" for name, value in settings["assets"].items()),
        "Pairs": f"fingerprint {settings['fingerprint']}, the same for every model",
        "Probe": f"{settings['probe_minutes']:g} minutes per model" if settings["probe_minutes"] else "skipped",
        "Scores": "; ".join(f"{name}: {value}" for name, value in done[0][1]["signatures"].items()),
    }
    return setup(facts, settings)
