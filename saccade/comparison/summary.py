"""Summary of a comparison of translation models in sentences and as a table, from fixed templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

NAMES = {
    "rnn": "RNN",
    "rnn+attention": "RNN + attention",
    "convolution": "convolution",
    "transformer": "Transformer",
    "universal": "Universal Transformer",
}
SCORES = {"bleu": "BLEU", "chrf": "chrF", "exact": "exact match", "token_error": "token error", "loss": "loss"}
SOLVED = 90.0  # percent of correct symbols from which a length counts as solved


def summary(result: dict[str, Any]) -> list[str]:
    """Return sentences, the most important first."""
    done = [model for model in result["models"] if "scores" in model]
    sentences = [*failures(result["models"], NAMES), *_quality(done), *_length(done), *_cost(done)]
    for kind, verb in (("copy", "Copying"), ("reverse", "Reversing")):
        sentences += _probe([model for model in result["models"] if kind in model], kind, verb)
    return [*sentences, *_memory(result["attention_memory"])]


def failures(models: Iterable[dict[str, Any]], names: Mapping[str, str]) -> list[str]:
    """Return which models could not be trained or probed, and why."""
    return [
        f"{names[model['name']]} could not be {'trained' if stage == 'train' else 'probed'}: {message}"
        for model in models
        for stage, message in model.get("failed", {}).items()
    ]


def _quality(done: list[dict[str, Any]]) -> list[str]:
    if len(done) < 2:
        return []
    score = done[0]["score"]
    ranked = sorted(done, key=lambda model: -model["scores"][score])
    best, *_, last = ranked
    return [
        f"{_capital(best)} is best with {best['scores'][score]:.1f} {SCORES[score]}; "
        f"{_article(last)} is last with {last['scores'][score]:.1f}."
    ]


def _length(done: list[dict[str, Any]]) -> list[str]:
    """Return how much the RNN without attention, or else the worst model, loses on the longest sources."""
    if len(done) < 2:
        return []
    score, named = done[0]["score"], {model["name"]: model for model in done}
    if {"rnn", "rnn+attention"} <= named.keys():
        worse, better = named["rnn"], named["rnn+attention"]
    else:
        ranked = sorted(done, key=lambda model: model["by_length"][score][-1]["value"])
        worse, better = ranked[0], ranked[-1]
    low, high = worse["by_length"][score], better["by_length"][score]
    if len(low) < 2:
        return []
    gaps = [above["value"] - below["value"] for above, below in zip(high, low, strict=True)]
    verb = "loses" if gaps[-1] >= 0 else "gains"
    return [
        f"At {low[-1]['from']} and more source tokens {_article(worse)} {verb} {abs(gaps[-1]):.1f} {SCORES[score]} "
        f"against {NAMES[better['name']]} ({low[-1]['value']:.1f} against {high[-1]['value']:.1f}); "
        f"below {low[0]['to']} tokens the difference is {gaps[0]:+.1f}."
    ]


def _cost(done: list[dict[str, Any]]) -> list[str]:
    if len(done) < 2:
        return []
    speed = extremes(done, lambda model: model["target_tokens_per_second"])
    memory = extremes(done, lambda model: model["peak_bytes"])
    decoding = extremes(done, lambda model: model["translating_seconds"])
    slow, fast = (model["target_tokens_per_second"] for model in speed)
    return [
        f"{_capital(speed[1])} trains on {fast:,.0f} target tokens per second, {fast / slow:.1f} times as many as "
        f"{_article(speed[0])}.",
        f"Translating the {decoding[0]['pairs']:,} validation pairs takes {_article(decoding[0])} "
        f"{decoding[0]['translating_seconds']:.1f} s and {_article(decoding[1])} "
        f"{decoding[1]['translating_seconds']:.1f} s.",
        f"Peak memory ranges from {memory[0]['peak_bytes'] / 1e6:,.0f} MB ({NAMES[memory[0]['name']]}) to "
        f"{memory[1]['peak_bytes'] / 1e6:,.0f} MB ({NAMES[memory[1]['name']]}).",
    ]


def extremes(
    done: list[dict[str, Any]], quantity: Callable[[dict[str, Any]], float]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the models with the smallest and the largest value of a quantity."""
    ranked = sorted(done, key=quantity)
    return ranked[0], ranked[-1]


def solved_length(accuracy: dict[str, float]) -> int:
    """Return the length up to which every tested length is solved; 0: none."""
    max_length = 0
    for length, value in sorted((int(length), value) for length, value in accuracy.items()):
        if value < SOLVED:
            break
        max_length = length
    return max_length


def _probe(models: list[dict[str, Any]], kind: str, verb: str) -> list[str]:
    """Return the length up to which each model solves the probe."""
    groups: dict[int, list[str]] = {}
    for model in models:
        groups.setdefault(solved_length(model[kind]["accuracy"]), []).append(NAMES[model["name"]])
    parts = []
    for length, names in sorted(groups.items()):
        limit = f"up to {length:,} symbols" if length else "at no tested length"
        parts.append(f"{enumerate_names(names)} {limit}")
    return [f"{verb} is solved (at least {SOLVED:.0f}% of the symbols correct) by {'; '.join(parts)}."] if parts else []


def _memory(memory: dict[str, Any] | None) -> list[str]:
    if not memory:
        return []
    before, last = memory["rows"][-2:]
    return [
        f"Plain attention saves {last['plain'] / 1e6:,.0f} MB for its backward pass at {last['tokens']:,} tokens, the "
        f"fused kernel {last['fused'] / 1e6:,.1f} MB; doubling the tokens costs "
        f"{last['plain'] / before['plain']:.1f} and {last['fused'] / before['fused']:.1f} times as much."
    ]


def enumerate_names(names: list[str]) -> str:
    """Return "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(model: dict[str, Any]) -> str:
    name = NAMES[model["name"]]
    return name[0].upper() + name[1:]


def _article(model: dict[str, Any]) -> str:
    name = NAMES[model["name"]]
    return name if model["name"] in ("rnn+attention", "convolution") else f"the {name}"


def score_names(done: list[dict[str, Any]]) -> list[str]:
    """Return the names of the scores, the main one first."""
    return [name for name in SCORES if name in done[0]["scores"]]


def format_score(name: str, value: float) -> str:
    return f"{value:.3f}" if name == "loss" else f"{value:.1f}"


def text_table(result: dict[str, Any]) -> list[str]:
    """Return the table of the models as lines of text."""
    names = score_names([model for model in result["models"] if "scores" in model])
    header = ["model", *names, "parameters", "tokens/s", "peak MB", "steps", "sequential", "reach", "translating s"]
    return align_columns([header, *(_row(model, names, len(header)) for model in result["models"])])


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines of text; all columns but the first are aligned to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(_justify(cell, widths[at], at) for at, cell in enumerate(row)).rstrip() for row in rows]


def _justify(cell: str, width: int, at: int) -> str:
    return cell.rjust(width) if at else cell.ljust(width)


def _row(model: dict[str, Any], names: list[str], width: int) -> list[str]:
    if "scores" not in model:
        return [model["name"], "failed", *[""] * (width - 2)]
    return [
        model["name"],
        *(format_score(name, model["scores"][name]) for name in names),
        f"{model['parameters']:,}",
        f"{model['target_tokens_per_second']:,.0f}",
        f"{model['peak_bytes'] / 1e6:,.0f}",
        f"{model['steps']:,}",
        model["sequential"]["steps"],
        f"{model['reach']['seen']}/{model['reach']['of']}",
        f"{model['translating_seconds']:.1f}",
    ]
