"""Attention maps of a sequence-to-sequence model for one pair, and the word alignment from them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from saccade.core import AttentionMap, AttentionMaps, TokenScores
from saccade.errors import ModelFileError
from saccade.metrics.alignment import cross_attention, mean_heads, one_head, strip_ends
from saccade.models.seq2seq.decoder_only import DecoderOnly
from saccade.models.seq2seq.interface import Seq2Seq
from saccade.nn.probe import RecordedRow, Recorder, record
from saccade.tasks._seq2seq.tokenizers import PairTokenizers


def is_cross(name: str) -> bool:
    """Whether this is the name of a cross-attention layer."""
    return name.endswith("cross") or name == "attention"


def cross_recorder(model: nn.Module) -> Recorder | None:
    """Return a recorder of all cross-attention; None where the model has none."""
    names = [name for name, module in model.named_modules() if hasattr(module, "weights") and is_cross(name)]
    return record(model, names) if names else None


@torch.no_grad()
def attention_maps(
    model: Seq2Seq, tokenizers: PairTokenizers, source: list[int], target: list[int]
) -> tuple[AttentionMaps, tuple[TokenScores, ...]]:
    """Return every attention map of one pair, and the steps of each token with adaptive computation time."""
    source_axis, output_axis = tokenizers.source_axis(source), tokenizers.output.output_axis(target)
    input_axis = tokenizers.output.input_axis(target)
    recorder = record(model) if any(hasattr(module, "weights") for module in model.modules()) else None
    ids, keep = source_tensors(model, tokenizers, source)
    target_ids = torch.tensor([[tokenizers.special.target_start, *target]], device=ids.device)
    with recorder or nullcontext():
        memory = model.encode(ids, keep)
        model.decode(target_ids, memory)
    maps = []
    for name, recorded in (recorder or {}).items():
        if isinstance(model, DecoderOnly):  # source and target are one sequence
            weights = model.source_weights(name, recorded.rows(len(source_axis))[0], len(source_axis))
            maps.append(AttentionMap(name, weights.cpu(), output_axis, source_axis))
            continue
        self_axis = source_axis if name.startswith("encoder") else input_axis
        axes = (output_axis, source_axis) if is_cross(name) else (self_axis, self_axis)
        maps.append(AttentionMap(name, RecordedRow(recorded, 0), *axes))
    steps = [tuple(halting.steps[0].tolist()) for halting in memory.halting]
    axes = (source_axis, input_axis)
    scores = tuple(TokenScores("steps", axis, values) for axis, values in zip(axes, steps, strict=False))
    return AttentionMaps(maps), scores


def source_tensors(model: Seq2Seq, tokenizers: PairTokenizers, source: list[int]) -> tuple[Tensor, Tensor]:
    """Return the ids (1, S) and `keep` of one source on the device of the model."""
    device = next(model.parameters()).device
    ids = torch.tensor([[*source, tokenizers.special.source_end]], device=device)
    return ids, torch.ones_like(ids, dtype=torch.bool)


def alignment_map(maps: AttentionMaps, choice: Mapping[str, Any]) -> AttentionMap | None:
    """Return the cross-attention map that aligns output words with source words best: (1, output, source).

    `choice` names a layer and a head, as returned by `metrics.alignment.choose_alignment_head`; empty: the mean over
    the heads of the last layer.
    """
    candidates = cross_attention(maps)
    if not candidates:
        return None
    if not choice:
        return strip_ends(mean_heads(candidates[-1]))
    name, head = (choice.get(key) for key in ("name", "head")) if isinstance(choice, Mapping) else (None, None)
    chosen = next((attention for attention in candidates if attention.name == name), None)
    if chosen is None or not (head is None or (type(head) is int and 0 <= head < chosen.shape[0])):
        names = ", ".join(attention.name for attention in candidates)
        raise ModelFileError(
            f"analysis.json: alignment must name one of {names} and one of its heads, but is {str(choice)[:80]}; "
            "`saccade resume` writes it again"
        )
    return strip_ends(mean_heads(chosen) if head is None else one_head(chosen, head))
