"""Measure: what each model of a comparison is asked, all alike, after it was trained.

Shapes: B rows, H heads, N tokens, E head width.
"""

from __future__ import annotations

import copy
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade import api
from saccade.core.task import Progress, Split
from saccade.look import maps
from saccade.metrics import generation
from saccade.models.seq2seq.architectures import Seq2SeqConfig
from saccade.models.seq2seq.interface import Seq2Seq
from saccade.nn.attention import Dot
from saccade.nn.attention import softmax as attention_weights
from saccade.runs.folder import Run
from saccade.runs.journal import read_journal
from saccade.tasks import translation

Tell = Callable[[str, float], None]
READ = 101  # source tokens whose way into the middle one is measured
HALF, MOST = 0.5, 0.95  # shares of a gradient
POINTS = 200  # points of a curve of the training loss
SIZES = (256, 512, 1024, 2048, 4096)  # tokens of the attention whose memory is measured
HEADS, WIDTH = 2, 32


def measured(trained: api.Trained, job: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Everything that is asked of a translator, as JSON."""
    opened = api.load(trained.run.folder)
    if not isinstance(opened, translation.Task):
        raise TypeError(f"only translations can be compared, but {trained.run.folder} is another task")
    opened.load_data(Path(job["data"]))
    model = opened.model
    described = json.loads((trained.run.folder / "data.json").read_text(encoding="utf-8"))
    return {
        "scores": trained.scores,
        "score": opened.score,
        "signatures": dict(trained.explained),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        **_speed(trained.run, opened),
        **_translated(opened, job["edges"], tell),
        "curve": _curve(trained.run),
        "losses": _losses(trained.run),
        "sequential": sequential(opened.config.model),
        "chain": {str(count): chain(model, count) for count in (READ // 4, READ // 2, READ)},
        "reach": reach(model),
        "sentence": _sentence(opened, job["sentence"], job["reference"]),
        "assets": described["assets"],
        "fingerprint": described["fingerprint"],
    }


def probed(run: Run, scores: dict[str, float], lengths: Sequence[int]) -> dict[str, Any]:
    """What a probe found, as JSON."""
    steps = [record for record in read_journal(run.folder / "generation.jsonl") if "tokens" in record]
    return {
        "accuracy": {str(length): scores[f"accuracy_{length}"] for length in lengths},
        "steps": steps[-1]["step"],
        "tokens": sum(record["tokens"] for record in steps),
        "minutes": steps[-1]["seconds"] / 60,
    }


def peak_bytes() -> int:
    """The largest resident memory this process has had."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage tells may be that of the process which started this one
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _speed(run: Run, opened: translation.Task) -> dict[str, float]:
    """Steps done, and tokens a second while training, without the time of evaluations."""
    seconds = tokens = last = 0.0
    evaluated, steps = True, 0  # the first step has no step before it to begin at
    for record in read_journal(run.folder / "generation.jsonl"):
        if "tokens" in record:
            if not evaluated:
                seconds, tokens = seconds + record["seconds"] - last, tokens + record["tokens"]
            last, steps = record["seconds"], record["step"]
        evaluated = "tokens" not in record
    train = opened.parts[Split.TRAIN]
    written = float((train.target.lengths + 1).sum())
    read = float((train.source.lengths + 1).sum())
    speed = tokens / max(seconds, 1e-9)
    return {
        "steps": steps,
        "minutes": last / 60,
        "target_tokens_per_second": speed,
        "tokens_per_second": speed * (written + read) / written,
    }


def _translated(opened: translation.Task, edges: Sequence[int], tell: Tell) -> dict[str, Any]:
    """Translate all validation pairs against the clock; the scores of each class of source lengths."""
    pairs = opened.parts[Split.VALID]
    options = opened.Options(**vars(opened.config.search), maps=False)
    sources, references = [source for source, _ in pairs.texts], [target for _, target in pairs.texts]
    tell("translating", 0.0)
    began = time.perf_counter()
    outputs = [found.output for found in opened.predict_all(sources, options)]
    seconds = time.perf_counter() - began
    tell("translating", 1.0)
    lengths = pairs.source.lengths.tolist()
    kinds: dict[str, Callable[..., generation.Score]] = {"bleu": generation.bleu, "chrf": generation.chrf}
    if opened.score == "exact":
        kinds = {"exact": generation.exact, "token_error": generation.token_error}
    classes = {}
    for name, kind in kinds.items():
        rows = generation.by_length(lengths, outputs, references, edges, lambda a, b, kind=kind: kind(a, b).value)  # type: ignore[misc]
        classes[name] = [dict(zip(("from", "to", "count", "value"), row, strict=True)) for row in rows]
    return {"translating_seconds": seconds, "pairs": len(sources), "by_length": classes}


def _curve(run: Run) -> list[dict[str, float]]:
    """The scores of every evaluation on the way, with the minutes and the target tokens until then."""
    found, tokens = [], 0
    for record in read_journal(run.folder / "generation.jsonl"):
        if "tokens" in record:
            tokens += record["tokens"]
        else:
            rest = {name: value for name, value in record.items() if name not in ("elapsed", "best", "pairs")}
            found.append({**rest, "minutes": record["elapsed"] / 60, "tokens": tokens})
    return found


def _losses(run: Run) -> list[list[float]]:
    """[step, minutes, tokens, training loss] at some steps, each a mean since the one before."""
    records = [record for record in read_journal(run.folder / "generation.jsonl") if "tokens" in record]
    every, found, tokens = max(1, -(-len(records) // POINTS)), [], 0
    for first in range(0, len(records), every):
        group = records[first : first + every]
        tokens += sum(record["tokens"] for record in group)
        loss = sum(record["loss"] for record in group) / len(group)
        found.append([group[-1]["step"], round(group[-1]["seconds"] / 60, 4), tokens, round(loss, 5)])
    return found


def sequential(shapes: Seq2SeqConfig) -> dict[str, Any]:
    """Steps that must wait for each other to read n tokens, by construction."""
    name = shapes.architecture
    if name.startswith("rnn"):
        more = shapes.rnn.depth - 1
        return {"steps": f"n + {more}" if more else "n", "at": READ + more, "grows": True}
    depth = {
        "convolution": shapes.convolution.depth,
        "transformer": shapes.transformer.depth,
        "universal": shapes.universal.depth,
    }[name]
    return {"steps": str(depth), "at": depth, "grows": False}


def _encoded(model: Seq2Seq, count: int) -> tuple[Tensor, Tensor]:
    """The embedded source (1, N, D) of some tokens and what the encoder makes of it (1, N, D), in double precision.

    In double precision no recurrent kernel is fused: autograd keeps each of its steps.
    """
    whole = copy.deepcopy(model).double().cpu().eval()
    table = whole.source
    assert isinstance(table, nn.Embedding)
    leaves: list[Tensor] = []

    def cut(module: nn.Module, given: Any, out: Tensor) -> Tensor:
        leaves.append(out.detach().requires_grad_())
        return leaves[-1]

    table.register_forward_hook(cut)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(table.num_embeddings, (1, count), generator=generator)
    values = whole.encode(ids, torch.ones_like(ids, dtype=torch.bool)).values
    return leaves[0], values


def reach(model: Seq2Seq) -> dict[str, Any]:
    """Which source tokens can change what the encoder says of the middle one, by the gradient."""
    given, values = _encoded(model, READ)
    middle = values[0, READ // 2]
    mix = torch.randn(len(middle), generator=torch.Generator().manual_seed(2), dtype=middle.dtype)
    (gradient,) = torch.autograd.grad(middle @ mix, given)
    sizes = gradient[0].norm(dim=-1)  # (N,)
    shares = sizes / sizes.sum()
    ordered = shares.sort(descending=True).values.cumsum(0)
    return {
        "of": READ,
        "seen": int((sizes > 0).sum()),
        "half": int((ordered < HALF).sum()) + 1,
        "most": int((ordered < MOST).sum()) + 1,
        "shares": [float(f"{share:.3g}") for share in shares.tolist()],
    }


def chain(model: Seq2Seq, count: int) -> int:
    """The longest chain of operations that wait for each other when `count` tokens are read, as autograd keeps them."""
    _, values = _encoded(model, count)
    depths: dict[Any, int] = {}
    stack = [values.grad_fn]
    while stack:
        node = stack[-1]
        below = [other for other, _ in node.next_functions if other is not None]  # type: ignore[union-attr]
        waiting = [other for other in below if other not in depths]
        if waiting:
            stack += waiting
            continue
        depths[stack.pop()] = 1 + max((depths[other] for other in below), default=0)
    return depths[values.grad_fn]


def _sentence(opened: translation.Task, text: str, reference: str) -> dict[str, Any]:
    """The translation of the sentence, what it looked at, and the steps of its tokens where they differ."""
    options = opened.Options(**vars(opened.config.search))
    found = opened.predict(text, options)
    seen = None
    if found.alignment is not None:
        read = maps.merge(found.alignment)
        weights = [[round(weight, 4) for weight in row] for row in maps.only(read).tolist()]
        seen = {"name": read.name, "rows": read.queries.labels, "columns": read.keys.labels, "weights": weights}
    steps = [
        {"name": f"{reading.axis.kind} {reading.name}", "labels": reading.axis.labels, "values": reading.values}
        for reading in found.readings
    ]
    return {"input": text, "reference": reference, "output": found.output, "alignment": seen, "steps": steps}


def attention_memory(advance: Progress) -> dict[str, Any]:
    """Bytes that one attention keeps for its backward pass, in the open and by the fused kernel, at several lengths."""
    rows = []
    for done, tokens in enumerate(SIZES, start=1):
        plain, fused = (kept_bytes(tokens, way) for way in (_plain, F.scaled_dot_product_attention))
        rows.append({"tokens": tokens, "plain": plain, "fused": fused})
        advance(done / len(SIZES))
    return {"heads": HEADS, "width": WIDTH, "rows": rows}


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention_weights(Dot()(q, k), None) @ v


def kept_bytes(tokens: int, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> int:
    """What autograd keeps until the backward pass, each piece of memory once."""
    q, k, v = (torch.ones(1, HEADS, tokens, WIDTH, requires_grad=True) for _ in range(3))
    kept: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = attend(q, k, v)  # alive until all is counted: what is freed could be counted twice
    del out
    return sum(kept.values())
