"""`saccade look REF INPUT --against OTHER`: what changes in the attention between two inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.cli.group import log, print_json
from saccade.cli.printing import show_text
from saccade.errors import UsageError, suggest

if TYPE_CHECKING:
    from saccade.look.difference import Change, MapDifference
    from saccade.model import Model

COUNT = 20  # changes that are shown


def look_against(
    model: Model, inputs: dict[str, Any], other: str, shown: dict[str, Any], as_json: bool, out: Path | None
) -> None:
    """Show the outputs of both inputs and the weights that change most; `shown` has layer, head, pieces and options."""
    from saccade.look.difference import compare_predictions, largest_changes
    from saccade.look.difference_figure import changes_text

    options = {**shown["options"], "attention": True}
    first = model(**inputs, **options)
    second = model(**{**inputs, model.inputs[0].name: other}, **options)
    differences = compare_predictions(first, second, words=not shown["pieces"])
    _, changes = largest_changes(differences, COUNT)
    if out is not None:
        texts = [str(side.inputs[model.inputs[0].name]) for side in (first, second)]
        _write(differences, changes, shown, " - ".join(reversed(texts)), out)
    if as_json:
        sides = {"first": first.to_json(), "second": second.to_json()}
        print_json({**sides, "changes": [_to_json(change, differences) for change in changes]})
        return
    for name, prediction in (("A", first), ("B", second)):
        show_text(f"{name}: {prediction.text}\n")
    show_text(changes_text(changes, differences) + "\n")


def _write(
    differences: list[MapDifference], changes: list[Change], shown: dict[str, Any], title: str, out: Path
) -> None:
    """Write the matrix of the chosen layer and head; without a layer that of the largest change."""
    from saccade.look.difference_figure import write_difference

    layer, head = shown["layer"], shown["head"]
    if not layer and changes:
        layer, head = changes[0].maps[0], changes[0].head if head is None else head
    names = [difference.maps[0] for difference in differences]
    layer = layer or names[-1]
    if layer not in names:
        raise UsageError(f"no attention '{layer}'{suggest(layer, names)}")
    difference = differences[names.index(layer)]
    where = f"{layer}, {'mean of the heads' if head is None else f'head {head}'}"
    write_difference(difference, head, f"{where}: B - A of {title}", out)
    log(f"wrote {out}")


def _to_json(change: Change, differences: list[MapDifference]) -> dict[str, Any]:
    difference = next(entry for entry in differences if entry.maps == change.maps)
    labels = difference.query_labels(change.query), difference.key_labels(change.key)
    weights = {"before": change.before, "after": change.after, "difference": change.difference}
    return {"map": change.maps[0], "head": change.head, "query": labels[0], "key": labels[1], **weights}
