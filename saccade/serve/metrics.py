"""Metrics: counters and histograms in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
HELP = {
    "saccade_requests_total": "requests by route and status",
    "saccade_cancelled_total": "requests whose client left before the end",
    "saccade_prompt_tokens_total": "tokens of prompts and inputs",
    "saccade_completion_tokens_total": "tokens generated",
    "saccade_request_seconds": "from a request to the end of its response",
    "saccade_first_token_seconds": "from a request for text to its first token",
    "saccade_queue_length": "texts and requests that wait",
    "saccade_rows": "rows of the engine",
    "saccade_rows_in_use": "texts that are generated now",
    "saccade_in_flight": "requests that are answered now",
    "saccade_ready": "1 if models are loaded and the server is not draining",
}
Labels = tuple[tuple[str, str], ...]
Gauge = tuple[str, Mapping[str, str], float]


@dataclass
class _Histogram:
    buckets: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        count = 0
        for bound, size in zip((*map(str, SECONDS), "+Inf"), self.buckets, strict=True):
            count += size
            yield _line(f"{name}_bucket", (*labels, ("le", bound)), count)
        yield _line(f"{name}_sum", labels, self.total)
        yield _line(f"{name}_count", labels, count)


class Metrics:
    """What happened since the start; belongs to the event loop."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, _Histogram]] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        values = self._counters.setdefault(name, {})
        key = tuple(labels.items())
        values[key] = values.get(key, 0) + amount

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration to a histogram."""
        self._histograms.setdefault(name, {}).setdefault(tuple(labels.items()), _Histogram()).add(seconds)

    def text(self, gauges: Iterable[Gauge]) -> str:
        """Return everything, and some gauges that are read now."""
        lines: list[str] = []
        for name, counters in self._counters.items():
            lines += _header(name, "counter")
            lines += (_line(name, labels, value) for labels, value in counters.items())
        for name, histograms in self._histograms.items():
            lines += _header(name, "histogram")
            for labels, histogram in histograms.items():
                lines += histogram.lines(name, labels)
        named: dict[str, list[str]] = {}
        for name, labelled, value in gauges:
            named.setdefault(name, _header(name, "gauge")).append(_line(name, tuple(labelled.items()), value))
        return "\n".join([*lines, *(line for group in named.values() for line in group), ""])


def _header(name: str, kind: str) -> list[str]:
    return [f"# HELP {name} {HELP[name]}", f"# TYPE {name} {kind}"]


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
    return f"{name}{{{inside}}} {value:g}" if inside else f"{name} {value:g}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
