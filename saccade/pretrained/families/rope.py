"""Rotary settings of config.json, in the current form (rope_parameters) and in the older one (rope_scaling)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from saccade.models.text.gpt import GPTConfig
from saccade.nn.rotary_scaling import RotaryScaling

KINDS = ("default", "linear", "dynamic", "yarn", "llama3")
NUMBERS = (
    *("rope_theta", "factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    *("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "partial_rotary_factor"),
)
OTHER = ("rope_type", "type", "truncate")
Rope = tuple[float, RotaryScaling]
"""base and scaling of the frequencies"""


def choose_rope(parameters: Mapping[str, Any] | None, scaling: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the settings that transformers uses: rope_scaling where it is given, else rope_parameters."""
    return scaling or parameters or {}


def read_rope(rope: Mapping[str, Any], theta: float | None, max_positions: int, original: int | None = None) -> Rope:
    """Return base and scaling; `theta` and `original` are the values of rope_theta and
    original_max_position_embeddings at the top of config.json, `max_positions` that of max_position_embeddings.
    """
    _check(rope)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in KINDS:
        raise ValueError(f"rope_type must be one of {', '.join(KINDS)}, but is {str(kind)[:80]!r}")
    if rope.get("partial_rotary_factor") not in (None, 1):
        raise ValueError(f"partial_rotary_factor must be 1, but is {rope['partial_rotary_factor']}")
    base = float(rope.get("rope_theta") or theta or 10000.0)
    if kind == "default":
        return base, RotaryScaling()
    context = int(original or rope.get("original_max_position_embeddings") or max_positions)
    if kind == "dynamic":
        context = max_positions
    factor = rope.get("factor")
    if factor is None and kind == "yarn":
        factor = max_positions / context
    values: dict[str, Any] = {"kind": kind, "factor": _number(kind, "factor", factor), "original_positions": context}
    if kind == "llama3":
        for name, key in (("low_frequency_factor", "low_freq_factor"), ("high_frequency_factor", "high_freq_factor")):
            values[name] = _number(kind, key, rope.get(key))
    if kind == "yarn":
        values["beta_fast"] = float(rope.get("beta_fast") or 32)
        values["beta_slow"] = float(rope.get("beta_slow") or 1)
        values["truncate"] = rope.get("truncate") is not False
        values["attention_factor"] = _yarn_attention_factor(rope, values["factor"])
    return base, RotaryScaling(**values)


def write_rope(base: float, scaling: RotaryScaling) -> dict[str, Any]:
    """Return the rope_parameters of a config."""
    values: dict[str, Any] = {"rope_theta": base, "rope_type": "default" if scaling.kind == "none" else scaling.kind}
    if scaling.kind != "none":
        values["factor"] = scaling.factor
    if scaling.kind in ("yarn", "llama3"):
        values["original_max_position_embeddings"] = scaling.original_positions
    if scaling.kind == "llama3":
        values |= {
            "low_freq_factor": scaling.low_frequency_factor,
            "high_freq_factor": scaling.high_frequency_factor,
        }
    if scaling.kind == "yarn":
        values |= {
            "attention_factor": scaling.attention_factor,
            "beta_fast": scaling.beta_fast,
            "beta_slow": scaling.beta_slow,
            "truncate": scaling.truncate,
        }
    return values


def write_rope_fields(config: GPTConfig) -> dict[str, Any]:
    """Return the rotary fields of config.json, in the current and the older form."""
    rope = write_rope(config.rotary_base, config.rotary_scaling)
    fields = {"rope_theta": config.rotary_base, "rope_parameters": rope}
    return fields if rope["rope_type"] == "default" else {**fields, "rope_scaling": rope}


def _check(rope: Mapping[str, Any]) -> None:
    """Refuse keys and types that are not known: each may change the numbers."""
    for key, value in rope.items():
        if value is None:
            continue
        if key not in (*NUMBERS, *OTHER):
            raise ValueError(f"rope_parameters must not have {str(key)[:80]!r}, which is not supported")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if key in NUMBERS and not (number and math.isfinite(value)):
            raise ValueError(f"rope_parameters.{key} must be a number, but is {str(value)[:80]!r}")
        if key == "truncate" and not isinstance(value, bool):
            raise ValueError(f"rope_parameters.truncate must be true or false, but is {str(value)[:80]!r}")


def _number(kind: str, key: str, value: Any) -> float:
    if value is None:
        raise ValueError(f"rope_parameters.{key} must be a number for rope_type {kind!r}, but is missing")
    return float(value)


def _yarn_attention_factor(rope: Mapping[str, Any], factor: float) -> float:
    """Return the given factor, or the recommended one (https://arxiv.org/abs/2309.00071, section 3.4)."""

    def recommended(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    weight, all_dimensions = rope.get("mscale"), rope.get("mscale_all_dim")
    if weight and all_dimensions:
        return recommended(weight) / recommended(all_dimensions)
    return recommended(1.0)
