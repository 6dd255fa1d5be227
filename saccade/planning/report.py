"""Report: a plan as lines of text and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from saccade.core.evaluation import Table

YES_NO = {True: "yes", False: "no"}


def lines(values: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a plan."""
    kinds: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
        "table": _table,
        "published": _published,
        "task": _task,
        "pretrained": _pretrained,
    }
    yield from kinds[values["kind"]](values)


def count(number: float) -> str:
    """Return a number of parameters as papers write it."""
    for size, unit, digits in ((1e9, "B", 2 if number < 1e11 else 1), (1e6, "M", 1), (1e3, "K", 1)):
        if number >= size:
            return f"{number / size:,.{digits}f}{unit}"
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Return bytes in decimal units."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= unit:
            return f"{number / unit:,.1f} {name}"
    return f"{number:,.0f} B"


def duration(seconds: float) -> str:
    """Return a time in the unit in which people say it."""
    for unit, name in ((2 * 86400.0, "days"), (2 * 3600.0, "hours"), (120.0, "minutes"), (1.0, "s")):
        if seconds >= unit:
            scale = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "s": 1.0}[name]
            return f"{seconds / scale:,.1f} {name}"
    return f"{1000 * seconds:,.1f} ms"


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return Table("", tuple(columns), tuple(tuple(row) for row in rows)).to_markdown()


def _table(values: dict[str, Any]) -> Iterator[str]:
    rows = values["rows"]
    yield from _markdown(
        ("model", "layers", "width", "heads", "counted", "stated", "difference", "data", "hardware"),
        [
            (
                row["title"],
                str(row["layers"]),
                f"{row['width']:,}",
                str(row["heads"]),
                f"{row['parameters']:,}",
                row["stated_text"],
                f"{row['difference']:+.1%}",
                row["data"] or "-",
                row.get("hardware", "-"),
            )
            for row in rows
        ],
    )
    yield ""
    for row in rows:
        yield f"{row['title']}: {row['reason']}."
    yield ""
    yield f"Training time from FLOPs at {values['utilisation']:.0%} of the peak of the published hardware:"
    yield ""
    yield from _markdown(
        ("model", "tokens", "FLOPs", "hardware", "estimated", "published"),
        [
            (
                row["title"],
                f"{row['tokens']:.3g}",
                f"{row['flops']:.2e}",
                row["hardware"],
                duration(3600 * row["estimated_hours"]),
                duration(3600 * row["published_hours"]) if row["published_hours"] else "-",
            )
            for row in rows
            if "hardware" in row
        ],
    )
    for row in rows:
        if "dollars" in row:
            yield ""
            cluster = row["hardware"].split(" ")[0]
            yield (
                f"{row['title']}: {cluster} chips x {row['published_hours']:,.0f} hours x ${row['price']:g} = "
                f"${row['dollars']:,.0f}"
            )


def _published(values: dict[str, Any]) -> Iterator[str]:
    memory, device = values["memory"], values["device"]
    shape = f"{values['layers']} layers, width {values['dim']:,}, {values['heads']} heads"
    yield f"{values['title']}: {shape}, vocabulary {values['vocabulary']:,}, context {values['context']:,}"
    yield f"parameters: {values['parameters']:,}"
    for name, number in values["terms"].items():
        yield f"  of which {name}: {number:,}"
    forward, training = values["forward_flops_per_row"], values["training_flops_per_row"]
    yield f"FLOPs of a row of {values['context']:,} tokens: {forward:.3e} forward, {training:.3e} with backward"
    yield ""
    yield f"memory of training ({memory['recipe']}):"
    for name, text in (("weights", "weights"), ("gradients", "gradients"), ("optimizer", "optimizer state")):
        yield f"  {text:18}{size(memory[name]):>12}"
    yield f"activations of {memory['rows']} row{'s' if memory['rows'] > 1 else ''} in bfloat16:"
    yield ""
    yield from _variants(memory["variants"])
    yield ""
    if memory["kv_cache_per_row"]:
        yield f"KV cache of a row of {values['context']:,} tokens in bfloat16: {size(memory['kv_cache_per_row'])}"
    largest = count(values["largest_unsplit"])
    yield f"one {device['name']} of {size(device['memory'])} holds the state of up to {largest} parameters"
    yield f"needed: {values['advice']}"
    yield from _published_time(values)
    if "splits" in values:
        rows = values["memory"]["rows"]
        yield ""
        yield f"splits of one step of {values['micro_batches'] * rows:,} rows, in micro-batches of {rows:,}:"
        yield ""
        yield from _splits(values["splits"])


def _published_time(values: dict[str, Any]) -> Iterator[str]:
    if "hours" not in values:
        yield "time: the number of tokens is not published; give it with --tokens"
        return
    devices = f"{values['devices']:,} x {values['device']['name']}"
    yield (
        f"time: {values['flops']:.2e} FLOPs for {values['tokens']:.3g} tokens on {devices} at "
        f"{values['utilisation']:.0%} of their peak: {duration(3600 * values['hours'])}"
    )
    if "dollars" in values:
        yield _cost(values)


def _cost(values: dict[str, Any]) -> str:
    hours, price = f"{values['hours']:,.2f} hours", f"${values['price']:g}"
    return f"cost: {values['devices']:,} x {hours} x {price} = ${values['dollars']:,.2f}"


def _variants(variants: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        (
            YES_NO[each["fused_attention"]],
            YES_NO[each["checkpointing"]],
            size(each["activations"]),
            size(each["working"]),
        )
        for each in variants
    ]
    return _markdown(("fused attention", "checkpointing", "kept for backward", "working memory"), rows)


def _splits(splits: Sequence[dict[str, Any]]) -> list[str]:
    columns = (
        "split",
        "devices",
        "state",
        "activations",
        "fits",
        "sent per step",
        "on the links",
        "waiting",
        "what is sent",
    )
    rows = [
        (
            each["name"],
            f"{each['devices']:,}",
            size(each["states"]),
            size(each["activations"]),
            YES_NO[each["fits"]],
            size(each["sent"]),
            "-" if each["link_seconds"] is None else duration(each["link_seconds"]),
            f"{each['idle']:.0%}",
            each["what"],
        )
        for each in splits
    ]
    return _markdown(columns, rows)


def _task(values: dict[str, Any]) -> Iterator[str]:
    memory, unit = values["memory"], values["unit"]
    yield f"{values['name']}: {values['task']}, {values['precision']}"
    frozen = values["parameters"] - values["trainable"]
    yield f"parameters: {values['parameters']:,}{f', of which {frozen:,} are frozen' if frozen else ''}"
    yield f"a step: {values['units_per_step']:,.0f} {unit}, {values['flops_per_step']:.3e} FLOPs"
    yield ""
    yield "memory of a step:"
    parts = [("weights", "weights"), ("gradients", "gradients"), ("optimizer", "optimizer state")]
    for name, text in [*parts, ("activations", "activations")]:
        yield f"  {text:18}{size(memory[name]):>12}"
    yield f"  {'at the peak':18}{size(memory['weights'] + memory['step_memory']):>12}  (gradients replace activations)"
    if memory["variants"]:
        yield ""
        yield from _variants(memory["variants"])
    yield ""
    if values["kv_cache_per_row"]:
        yield f"KV cache of a full row: {size(values['kv_cache_per_row'])}"
    yield from _fit(values)
    yield from _task_time(values)
    if "measured" in values:
        yield ""
        yield from _measured(values["measured"])


def _fit(values: dict[str, Any]) -> Iterator[str]:
    device = values["device"]
    needed = f"{size(values['needed'])} of the {size(device['memory'])} of {device['name']}"
    beside = f", {size(values['resident'])} of it for the program and the data" if values.get("resident") else ""
    yield f"fits: {YES_NO[values['fits']]}: {needed}{beside}"
    if "advice" in values:
        yield f"needed: {values['advice']}"


def _task_time(values: dict[str, Any]) -> Iterator[str]:
    seconds = values["seconds_per_step"]
    speed = f"{values['units_per_step'] / seconds:,.0f} {values['unit']}/s"
    yield f"time: {duration(seconds)} a step ({speed}; {values['seconds_from']})"
    epochs = f"{values['epochs']:,.1f} epochs"
    total = duration(3600 * values["hours"])
    yield f"  {values['steps']:,} steps, {epochs}, {total} without evaluations"
    if "dollars" in values:
        yield _cost(values)


def _measured(values: dict[str, Any]) -> list[str]:
    shown: list[tuple[str, str, Callable[[float], str]]] = [
        ("seconds_per_step", "time of a step", duration),
        ("processor_seconds", "processor time of a step", duration),
        ("step_memory", "memory allocated for a step", size),
        ("process_memory", "resident memory of the process", size),
    ]
    rows = [
        (text, write(values[name]["predicted"]), write(values[name]["measured"]), f"{values[name]['difference']:+.1%}")
        for name, text, write in shown
        if name in values
    ]
    return _markdown((f"over {values['steps']:,} steps", "predicted", "measured", "difference"), rows)


def _pretrained(values: dict[str, Any]) -> Iterator[str]:
    yield f"{values['name']}: {values['parameters']:,} parameters"
    yield "memory of the weights:"
    for name in ("float32", "bfloat16", "int8", "int4"):
        yield f"  {name:18}{size(values['memory'][name]):>12}"
    if values["kv_cache_per_row"]:
        yield f"KV cache of a full row in float32: {size(values['kv_cache_per_row'])}"
