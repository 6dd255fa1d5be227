"""Step by step and Flow as JSON: the numbers of one head for one query, and of one token through all layers."""

from __future__ import annotations

import base64
from typing import Any

import torch
from torch import Tensor

from saccade.errors import UsageError
from saccade.look.explain import Calculation
from saccade.look.flow import Attended, Flow, SubLayer, default_position, flow_stacks, stack_axis, token_flow
from saccade.look.labels import visible
from saccade.look.names import map_titles, stack_titles
from saccade.studio.sessions import Inspection

KEYS = 64  # keys of a calculation that is shown number by number
LARGEST = 1 << 20  # numbers of W_O, of which only the columns of the head are sent if it has more


def calculation(inspection: Inspection, name: str, head: int, query: int) -> dict[str, Any]:
    """Return one head for one query number by number; of many keys those with the largest weights."""
    values = inspection.explanation.calculation(name, head, query)
    labels = inspection.attention(name).keys.labels
    kept = sorted(values.weights.topk(min(KEYS, len(values.weights))).indices.tolist())
    if len(labels) <= KEYS:
        kept = list(range(len(labels)))
    own = None  # the query among the keys, in self-attention
    if query in kept and values.inputs.shape[-1] == len(values.x) and torch.equal(values.inputs[query], values.x):
        own = kept.index(query)
    shown = {"keys": kept, "labels": [visible(labels[at]) for at in kept], "head": head, "own": own}
    return {**shown, **_vectors(values, kept), **_matrices(values, kept, head), "remaining": _remaining(values, kept)}


def _remaining(values: Calculation, kept: list[int]) -> dict[str, Any] | None:
    """Return the keys that are not shown as one: the score and the value with the same effect."""
    hidden = values.allowed.clone()
    hidden[kept] = False
    if not bool(hidden.any()):
        return None
    weights = values.scores[hidden].softmax(0)
    return {"score": float(values.scores[hidden].logsumexp(0)), "value": (weights @ values.v[hidden]).tolist()}


def _vectors(values: Calculation, kept: list[int]) -> dict[str, Any]:
    """Return what is edited or small, as lists."""
    by_key = {"k": values.k, "v": values.v, "dots": values.dots, "scores": values.scores, "weights": values.weights}
    single = {"x": values.x, "projected": values.projected, "q": values.q, "heads": values.heads}
    single |= {"head_output": values.head_output, "concatenated": values.concatenated, "output": values.output}
    numbers = {name: None if value is None else value[kept].tolist() for name, value in by_key.items()}
    numbers |= {name: value.tolist() for name, value in single.items()}
    residual = None
    if values.residual is not None:
        step = values.residual
        pre_norm = torch.allclose(step.x + step.update, step.result)
        residual = {**{name: part.tolist() for name, part in step._asdict().items()}, "pre_norm": pre_norm}
    return {**numbers, "scale": values.scale, "allowed": values.allowed[kept].tolist(), "residual": residual}


def _matrices(values: Calculation, kept: list[int], head: int) -> dict[str, Any]:
    """Return what is only looked at, packed."""
    width, w_o = len(values.q), values.w_o.matrix
    whole = w_o.numel() <= LARGEST
    matrices = {"w_q": values.w_q.matrix, "w_k": values.w_k.matrix, "w_v": values.w_v.matrix}
    matrices |= {"inputs": values.inputs[kept], "projected_k": values.projected_k[kept]}
    matrices["w_o"] = w_o if whole else w_o[:, head * width : (head + 1) * width]
    biases = {"b_q": values.w_q.bias, "b_k": values.w_k.bias, "b_v": values.w_v.bias, "b_o": values.w_o.bias}
    return {
        **{name: _pack(matrix) for name, matrix in matrices.items()},
        **{name: None if bias is None else bias.tolist() for name, bias in biases.items()},
        "whole": whole,
    }


def _pack(matrix: Tensor) -> dict[str, Any]:
    """Return a matrix as base64 of 32-bit numbers, little-endian."""
    numbers = matrix.detach().float().cpu().contiguous().numpy().astype("<f4")
    return {"shape": list(matrix.shape), "data": base64.b64encode(numbers.tobytes()).decode()}


def flow(inspection: Inspection, stack: str, position: int | None, stage: str) -> dict[str, Any]:
    """Return the flow of one token through a stack (empty: the first one), or all vectors of one of its stages."""
    prediction, task = inspection.prediction, inspection.model.task
    stacks = flow_stacks(prediction, task)
    stack = stack or next(iter(stacks), "")
    if position is None:
        position = default_position(prediction, stack) if stack in stacks else 0
    values = token_flow(task, prediction, stack, position)
    if stage:
        return {"vectors": _stage_vectors(values, stage)}
    titles, stacked = stack_titles(stacks), {name: _labels(inspection, name) for name in stacks}
    all_titles = map_titles([*prediction.attention, *(part.name for part in values.sub_layers)])
    return {
        "stack": stack,
        "stacks": [{"name": name, "title": titles[name], "tokens": labels} for name, labels in stacked.items()],
        "position": position,
        "label": stacked[stack][position],
        "width": len(values.output),
        "error": values.error,
        "embedding": _embedding(values),
        "stages": [_sub_layer(inspection, part, all_titles[part.name]) for part in values.sub_layers],
        "output": {"x": _norm(values.sub_layers[-1].result), "result": _norm(values.output)},
        "lens": None if values.lens is None else [_lens(name, top) for name, top in values.lens],
    }


def _labels(inspection: Inspection, stack: str) -> list[str]:
    return [visible(label) for label in stack_axis(inspection.prediction, stack).labels]


def _lens(name: str, top: tuple[tuple[str, float], ...]) -> dict[str, Any]:
    return {"layer": name, "top": [[visible(token), probability] for token, probability in top]}


def _norm(vector: Tensor) -> float:
    return float(vector.norm())


def _embedding(values: Flow) -> dict[str, Any]:
    """Return the norms of what the residual stream begins with."""
    added = [] if values.added is None else [{"name": "position", "norm": _norm(values.added)}]
    parts = [{"name": name, "norm": _norm(part)} for name, part in values.parts.items()]
    return {"parts": parts, "embedding": _norm(values.embedding), "added": added, "x": _norm(values.sub_layers[0].x)}


def _sub_layer(inspection: Inspection, part: SubLayer, title: str) -> dict[str, Any]:
    """Return the norms of one sub-layer, and what each token contributes to attention."""
    layer, _, kind = part.name.rpartition(".")
    vectors = {"x": part.x, "output": part.output, "update": part.update, "total": part.total, "result": part.result}
    attended = None
    if part.attended is not None:
        attended = _attended(part.attended, inspection.attention(part.name).keys.labels)
    return {
        **{"name": part.name, "layer": layer, "kind": kind, "title": title, "pre_norm": part.pre_norm},
        **{name: _norm(vector) for name, vector in vectors.items()},
        "cosine": float(torch.cosine_similarity(part.x, part.update, dim=0)),
        "attended": attended,
    }


def _attended(attended: Attended, labels: tuple[str, ...]) -> dict[str, Any]:
    """Return the tokens with the largest contributions, each with its weight in the head that weighs it most."""
    strongest, heads = attended.weights.max(0)
    sources = [
        {
            "key": key,
            "label": visible(labels[key]),
            "norm": _norm(vector),
            "weight": float(strongest[key]),
            "head": int(heads[key]),
        }
        for key, vector in zip(attended.keys, attended.sources, strict=True)
    ]
    norms = attended.heads.norm(dim=-1)
    rest = {"others": _norm(attended.others), "constant": _norm(attended.constant)}
    return {"sources": sources, **rest, "heads": norms.tolist(), "head": int(norms.argmax())}


def _stage_vectors(values: Flow, stage: str) -> list[dict[str, Any]]:
    """Return the vectors of a stage: embedding, output, or the name of a sub-layer."""
    if stage == "embedding":
        named = {**values.parts, "embedding": values.embedding}
        if values.added is not None:
            named["position"] = values.added
        named["residual stream"] = values.sub_layers[0].x
    elif stage == "output":
        named = {"residual stream": values.sub_layers[-1].result, "output of the stack": values.output}
    else:
        part = next((part for part in values.sub_layers if part.name == stage), None)
        if part is None:
            raise UsageError(f"no stage '{stage[:100]}'; there are: embedding, output and the sub-layers of the stack")
        named = {"x": part.x, "output": part.output}
        if not torch.equal(part.output, part.update):
            named["update"] = part.update
        named["x + update"] = part.total
        if not part.pre_norm:
            named["norm(x + update)"] = part.result
    return [{"name": name, "values": vector.tolist()} for name, vector in named.items()]
