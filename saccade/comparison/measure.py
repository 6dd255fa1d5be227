"""Measurements of each trained translation model of a comparison.

Shapes: B rows, H heads, N tokens, E head width.
"""

from __future__ import annotations

import copy
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade import api
from saccade.atomic_io import read_json
from saccade.comparison.history import curve, losses, speed
from saccade.comparison.kind import OnProgress
from saccade.core import Progress, Split
from saccade.metrics import generation
from saccade.metrics.alignment import head_weights, merge_words
from saccade.models.seq2seq.architectures import Seq2SeqConfig
from saccade.models.seq2seq.interface import Seq2Seq
from saccade.nn.attention import Dot
from saccade.nn.attention import softmax as attention_weights
from saccade.run import Run
from saccade.tasks import translation

TOKENS = 101  # source tokens whose influence on the middle token is measured
HALF, MOST = 0.5, 0.95  # fractions of a gradient
SIZES = (256, 512, 1024, 2048, 4096)  # sequence lengths at which the memory of attention is measured
HEADS, WIDTH = 2, 32


def measure_run(run: Run, settings: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
    """Return all measurements of a trained translation model, as JSON."""
    task = api.load(run.path).task
    if not isinstance(task, translation.Task):
        raise TypeError(f"only translation models can be compared, but {run.path} is of another task")
    task.load_data(Path(settings["data"]))
    task.check_fingerprint(settings["fingerprint"], Path(settings["data"]), run.name)
    model = task.model
    data = read_json(run.path / "data.json")
    return {
        "scores": dict(run.metrics),
        "score": task.metric.name,
        "signatures": dict(run.evaluation.signatures),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        **_speed(run, task),
        **_translate(task, settings["edges"], on_progress),
        "curve": curve(run, "tokens"),
        "losses": losses(run, "tokens"),
        "sequential": sequential(task.config.model),
        "chain": {str(count): chain(model, count) for count in (TOKENS // 4, TOKENS // 2, TOKENS)},
        "reach": reach(model),
        "sentence": _sentence(task, settings["sentence"], settings["reference"]),
        "assets": data["assets"],
        "fingerprint": data["fingerprint"],
    }


def probe_results(run: Run, lengths: Sequence[int]) -> dict[str, Any]:
    """Return the accuracy of the probe at each length, as JSON."""
    steps = [record for record in run.history if "lr_scale" in record]
    return {
        "accuracy": {str(length): run.metrics[f"accuracy_{length}"] for length in lengths},
        "steps": steps[-1]["step"],
        "tokens": sum(record["tokens"] for record in steps),
        "minutes": steps[-1]["seconds"] / 60,
    }


def peak_bytes() -> int:
    """Return the peak resident memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage may report that of the parent process
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _speed(run: Run, task: translation.Task) -> dict[str, float]:
    """Return the training steps and tokens per second, excluding evaluations."""
    measured = speed(run, "tokens")
    return {**measured, "target_tokens_per_second": measured["tokens_per_second"] * _target_fraction(task)}


def _target_fraction(task: translation.Task) -> float:
    """Return the fraction of the training tokens that are target tokens."""
    source, target = task.splits[Split.TRAIN].lengths.sum(axis=0)
    return float(target / (source + target))


def _translate(task: translation.Task, edges: Sequence[int], on_progress: OnProgress) -> dict[str, Any]:
    """Translate all validation pairs, measure the time, and score each source length class."""
    pairs = task.splits[Split.VALID]
    options = task.Options(**vars(task.config.search), attention=False)
    sources, references = zip(*(pairs.texts[row] for row in range(len(pairs))), strict=True)
    on_progress("translating", 0.0)
    start = time.perf_counter()
    outputs = [prediction.text for prediction in task.predict([{"source": text} for text in sources], options)]
    seconds = time.perf_counter() - start
    on_progress("translating", 1.0)
    lengths = pairs.source.lengths.tolist()
    functions: dict[str, Callable[..., generation.Score]] = {"bleu": generation.bleu, "chrf": generation.chrf}
    if task.metric.name == "exact":
        functions = {"exact": generation.exact, "token_error": generation.token_error}
    classes = {}
    for name, function in functions.items():

        def score(texts: list[str], targets: list[str], function: Callable[..., generation.Score] = function) -> float:
            return function(texts, targets).value

        rows = generation.by_length(lengths, outputs, list(references), edges, score)
        classes[name] = [dict(zip(("from", "to", "count", "value"), row, strict=True)) for row in rows]
    return {"translating_seconds": seconds, "pairs": len(sources), "by_length": classes}


def sequential(config: Seq2SeqConfig) -> dict[str, Any]:
    """Return the number of sequential steps to encode n tokens, by construction."""
    name = config.architecture
    if name.startswith("rnn"):
        extra = config.rnn.depth - 1
        return {"steps": f"n + {extra}" if extra else "n", "at": TOKENS + extra, "grows": True}
    depth = {
        "convolution": config.convolution.depth,
        "transformer": config.transformer.depth,
        "universal": config.universal.depth,
    }[name]
    return {"steps": str(depth), "at": depth, "grows": False}


def _encoded(model: Seq2Seq, count: int) -> tuple[Tensor, Tensor]:
    """Return the embeddings (1, N, D) of random source tokens and the encoder output (1, N, D), in double precision.

    In double precision recurrent kernels are not fused: autograd records each of their steps.
    """
    double = copy.deepcopy(model).double().cpu().eval()
    table = double.source
    assert isinstance(table, nn.Embedding)
    leaves: list[Tensor] = []

    def detach(module: nn.Module, inputs: Any, out: Tensor) -> Tensor:
        leaves.append(out.detach().requires_grad_())
        return leaves[-1]

    table.register_forward_hook(detach)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(table.num_embeddings, (1, count), generator=generator)
    values = double.encode(ids, torch.ones_like(ids, dtype=torch.bool)).values
    return leaves[0], values


def reach(model: Seq2Seq) -> dict[str, Any]:
    """Return the influence of each source token on the encoder output of the middle one, by its gradient."""
    embedded, values = _encoded(model, TOKENS)
    middle = values[0, TOKENS // 2]
    projection = torch.randn(len(middle), generator=torch.Generator().manual_seed(2), dtype=middle.dtype)
    (gradient,) = torch.autograd.grad(middle @ projection, embedded)
    norms = gradient[0].norm(dim=-1)  # (N,)
    fractions = norms / norms.sum()
    ordered = fractions.sort(descending=True).values.cumsum(0)
    return {
        "of": TOKENS,
        "seen": int((norms > 0).sum()),
        "half": int((ordered < HALF).sum()) + 1,
        "most": int((ordered < MOST).sum()) + 1,
        "fractions": [float(f"{fraction:.3g}") for fraction in fractions.tolist()],
    }


def chain(model: Seq2Seq, count: int) -> int:
    """Return the longest chain of dependent operations in the autograd graph of encoding `count` tokens."""
    _, values = _encoded(model, count)
    depths: dict[Any, int] = {}
    stack: list[Any] = [values.grad_fn]
    while stack:
        node = stack[-1]
        inputs = [function for function, _ in node.next_functions if function is not None]
        pending = [function for function in inputs if function not in depths]
        if pending:
            stack += pending
            continue
        depths[stack.pop()] = 1 + max((depths[function] for function in inputs), default=0)
    return depths[values.grad_fn]


def _sentence(task: translation.Task, text: str, reference: str) -> dict[str, Any]:
    """Return the translation of the sentence, its alignment, and the steps per token of adaptive models."""
    options = task.Options(**vars(task.config.search))
    (prediction,) = task.predict([{"source": text}], options)
    alignment = None
    if prediction.alignment is not None:
        attention = merge_words(prediction.alignment)
        weights = [[round(weight, 4) for weight in row] for row in head_weights(attention).tolist()]
        alignment = {
            "name": attention.name,
            "rows": attention.queries.labels,
            "columns": attention.keys.labels,
            "weights": weights,
        }
    steps = [
        {"name": f"{scores.axis.role} {scores.name}", "labels": scores.axis.labels, "values": scores.values}
        for scores in prediction.token_scores
    ]
    return {
        "input": text,
        "reference": reference,
        "output": prediction.text,
        "alignment": alignment,
        "steps": steps,
    }


def attention_memory(progress: Progress) -> dict[str, Any]:
    """Return the bytes that attention saves for its backward pass, plain and with the fused kernel, by length."""
    rows = []
    for done, tokens in enumerate(SIZES, start=1):
        plain, fused = (saved_bytes(tokens, attend) for attend in (_plain, F.scaled_dot_product_attention))
        rows.append({"tokens": tokens, "plain": plain, "fused": fused})
        progress(done / len(SIZES))
    return {"heads": HEADS, "width": WIDTH, "rows": rows}


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention_weights(Dot()(q, k), None) @ v


def saved_bytes(tokens: int, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> int:
    """Return the bytes that autograd saves for the backward pass; each storage counts once."""
    q, k, v = (torch.ones(1, HEADS, tokens, WIDTH, requires_grad=True) for _ in range(3))
    saved: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = attend(q, k, v)  # kept alive while counting: a freed storage could be counted twice
    del out
    return sum(saved.values())
