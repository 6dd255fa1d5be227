"""History of a run: its speed, its learning curve and its training loss, from the journal."""

from __future__ import annotations

from saccade.run import Run

POINTS = 200  # points of a curve of the training loss
NOT_DRAWN = ("elapsed", "best", "pairs")  # entries of an evaluation that are no scores


def speed(run: Run, unit: str) -> dict[str, float]:
    """Return the training steps, minutes and units (tokens, images) per second, excluding evaluations."""
    seconds = units = last = 0.0
    evaluated, steps = True, 0  # the first step has no previous one to measure from
    for record in run.history:
        if "lr_scale" in record:
            if not evaluated:
                seconds, units = seconds + record["seconds"] - last, units + record[unit]
            last, steps = record["seconds"], record["step"]
        evaluated = "lr_scale" not in record
    return {"steps": steps, "minutes": last / 60, f"{unit}_per_second": units / max(seconds, 1e-9)}


def curve(run: Run, unit: str) -> list[dict[str, float]]:
    """Return the scores of every evaluation during training, with the minutes and units so far."""
    points, units = [], 0
    for record in run.history:
        if "lr_scale" in record:
            units += record[unit]
        else:
            values = {name: value for name, value in record.items() if name not in NOT_DRAWN}
            points.append({**values, "minutes": record["elapsed"] / 60, unit: units})
    return points


def losses(run: Run, unit: str) -> list[list[float]]:
    """Return [step, minutes, units, training loss] at regular intervals; each loss is the mean of its interval."""
    records = [record for record in run.history if "lr_scale" in record]
    every, points, units = max(1, -(-len(records) // POINTS)), [], 0
    for first in range(0, len(records), every):
        group = records[first : first + every]
        units += sum(record[unit] for record in group)
        loss = sum(record["loss"] for record in group) / len(group)
        points.append([group[-1]["step"], round(group[-1]["seconds"] / 60, 4), units, round(loss, 5)])
    return points
