"""The report on heads over a data set: plain values that are kept on disk, sent to pages and printed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from saccade.core.serialize import inputs_to_json
from saccade.look.names import map_titles


@dataclass(frozen=True)
class Spread:
    """A mean over rows."""

    mean: float
    deviation: float
    """standard deviation over the rows (of the population)"""
    count: int
    """number of rows"""

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        mean = sum(values) / len(values)
        return cls(mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)), len(values))


@dataclass(frozen=True, order=True)
class HeadExample:
    """A large weight of a head; query and key are positions of the tokens of a row."""

    row: int
    query: int
    key: int
    query_label: str
    key_label: str
    weight: float


@dataclass(frozen=True)
class HeadSummary:
    """A head over all rows."""

    map: str
    head: int
    patterns: Mapping[str, int]
    """number of rows with each pattern, the most frequent first"""
    scores: Mapping[str, float]
    """mean weight of each kind of key"""
    entropy: Spread
    distance: Spread | None
    """of self-attention: positions between query and key"""
    cost: Spread | None
    """what the answer loses without the head; None: not computed"""
    examples: tuple[HeadExample, ...]
    """the largest weight between two words of the rows where it is largest, the largest first"""
    picture: str
    """mean over the rows, each stretched to the same size: square roots, one byte a cell, 255 for 1; base64"""
    columns: int

    @property
    def pattern(self) -> str:
        """The most frequent pattern."""
        return next(iter(self.patterns))

    @property
    def share(self) -> float:
        """The part of the rows with that pattern."""
        return self.patterns[self.pattern] / sum(self.patterns.values())


@dataclass(frozen=True)
class HeadReport:
    """All heads, or one, over the rows of a data set."""

    heads: tuple[HeadSummary, ...]
    inputs: Mapping[int, Mapping[str, Any]]
    """the rows of the examples, by their numbers"""
    rows: int
    quantity: str
    """what the answer loses: log-probability, or the number that is the answer; empty: no head was removed"""
    seconds: float
    """that computing took"""
    notes: tuple[str, ...] = ()

    @property
    def rows_per_second(self) -> float:
        return self.rows / max(self.seconds, 1e-9)

    def with_notes(self, notes: Sequence[str]) -> HeadReport:
        return replace(self, notes=(*self.notes, *notes))

    def to_json(self) -> dict[str, Any]:
        titles = map_titles(dict.fromkeys(summary.map for summary in self.heads))
        heads = [
            {**asdict(entry), "title": titles[entry.map], "pattern": entry.pattern, "share": entry.share}
            for entry in self.heads
        ]
        inputs = {str(row): inputs_to_json(values) for row, values in self.inputs.items()}
        values = {"rows": self.rows, "quantity": self.quantity, "seconds": self.seconds, "notes": list(self.notes)}
        return {**values, "rows_per_second": self.rows_per_second, "heads": heads, "inputs": inputs}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> HeadReport:
        heads = tuple(_summary(entry) for entry in value["heads"])
        inputs = {int(row): values for row, values in value["inputs"].items()}
        return cls(heads, inputs, value["rows"], value["quantity"], value["seconds"], tuple(value["notes"]))

    def lines(self) -> Iterator[str]:
        """Yield a line for each head, the clearest patterns first."""
        titles = map_titles(dict.fromkeys(summary.map for summary in self.heads))
        for entry in sorted(self.heads, key=lambda entry: (entry.pattern, -entry.share)):
            parts = [f"{titles[entry.map]} · head {entry.head}", f"{entry.pattern} in {entry.share:.0%} of rows"]
            parts.append(f"entropy {entry.entropy.mean:.2f} ± {entry.entropy.deviation:.2f}")
            if entry.distance is not None:
                parts.append(f"distance {entry.distance.mean:.1f} ± {entry.distance.deviation:.1f}")
            if entry.cost is not None:
                parts.append(f"cost {entry.cost.mean:.3g} ± {entry.cost.deviation:.2g}")
            if entry.examples:
                best = entry.examples[0]
                parts.append(f"{best.query_label} -> {best.key_label} {best.weight:.2f} (row {best.row})")
            yield ", ".join(parts)


def _summary(value: Mapping[str, Any]) -> HeadSummary:
    distance, cost = (None if value[name] is None else Spread(**value[name]) for name in ("distance", "cost"))
    fields: dict[str, Any] = {name: value[name] for name in ("map", "head", "patterns", "scores", "picture", "columns")}
    examples = tuple(HeadExample(**entry) for entry in value["examples"])
    return HeadSummary(entropy=Spread(**value["entropy"]), distance=distance, cost=cost, examples=examples, **fields)
