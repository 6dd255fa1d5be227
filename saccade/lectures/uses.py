"""Uses of the Transformer, R44 and R46 to R50: translation, the three families, memory, summaries, halting, GAN."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.comparison import measure
from saccade.data.lengths import PUBLISHED, length_table
from saccade.lectures import _pictures as pictures
from saccade.lectures._row import Demonstration, Row
from saccade.lectures._training import Trained, Written, train_model
from saccade.look.figure import AttentionFigure
from saccade.metrics.generation import bleu, rouge
from saccade.models.seq2seq.architectures import Seq2SeqConfig, build
from saccade.models.seq2seq.convolution import ConvolutionConfig
from saccade.models.seq2seq.interface import Seq2Seq, Vocabularies
from saccade.models.seq2seq.recurrent import RecurrentConfig
from saccade.models.seq2seq.transformer import TranslatorConfig
from saccade.models.seq2seq.universal import UniversalConfig, UniversalTranslator
from saccade.nn.attention import Dot, softmax
from saccade.nn.grid_attention import GridAttention
from saccade.nn.transformer import TransformerConfig
from saccade.nn.universal import Universal

CHINESE = (
    *(("機器學習", "machine learning"), ("機器", "machine"), ("學習", "learning")),
    *(("深度學習", "deep learning"), ("機器翻譯", "machine translation"), ("自然語言", "natural language")),
)
SMALL = ("dim=32", "hidden=64", "depth=1", "decoder_depth=1", "heads=2", "dropout=0", "embedding_dropout=0")


def _write_chinese(folder: Path) -> Written:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in CHINESE), encoding="utf-8")
    return path, path


def _translator(architecture: str, steps: int) -> Trained:
    shape = [f"model.{architecture}.{setting}" for setting in SMALL]
    return train_model(
        _write_chinese,
        "translation",
        steps,
        f"model.architecture={architecture}",
        *shape,
        *("batch_tokens=400", "label_smoothing=0"),
    )


def translation(show: Demonstration) -> None:
    """R44: a file of pairs -> encoder-decoder Transformer -> beam search, with its cross-attention."""
    trained = _translator("transformer", 150)
    trained.show(show, "exact")
    show.plot("training, from BOS, targets shifted right", "step", "loss", {"loss": trained.losses()})
    prediction = trained.model("機器學習", beam=4, n_best=2, attention=True)
    best = (prediction, *prediction.alternatives)
    show.table("beam search of 機器學習", ("hypothesis", "score"), [(one.text, one.scores["score"]) for one in best])
    show.figure("cross-attention", "English (rows) over Chinese", AttentionFigure.of(prediction))
    show.equal("機器學習", prediction.text, "machine learning")
    cross = [one for name, one in prediction.attention.items() if name.endswith("cross")]
    show.equal("cross-attention layers", len(cross), 1)
    show.equal("its columns: source tokens", cross[0].shape[2], len(cross[0].keys.labels))
    show.above("the best hypothesis scores above the second by", best[0].scores["score"] - best[1].scores["score"], 0.0)
    outputs = [one.text for one in trained.model([source for source, _ in CHINESE])]
    show.close(
        "translations of the pairs that are exact, %",
        100 * sum(a == b for a, (_, b) in zip(outputs, CHINESE, strict=True)) / len(CHINESE),
        100.0,
        0.01,
    )
    show.above(
        "BLEU of all translations, joined",
        bleu([" ".join(outputs)], [" ".join(target for _, target in CHINESE)]).value,
        99.0,
    )


FAMILIES = {
    "RNN": Seq2SeqConfig(architecture="rnn+attention", rnn=RecurrentConfig(dim=32, hidden=32, bidirectional=False)),
    "1-D convolution": Seq2SeqConfig(architecture="convolution", convolution=ConvolutionConfig(dim=32, depth=2)),
    "self-attention": Seq2SeqConfig(
        architecture="transformer", transformer=TranslatorConfig(dim=32, depth=1, hidden=64)
    ),
}


def _saved_bytes(model: Seq2Seq, tokens: int) -> int:
    """Return the bytes that encoding some tokens keeps for the backward pass."""
    saved: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    ids = torch.zeros(1, tokens, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        memory = model.encode(ids, torch.ones_like(ids, dtype=torch.bool))
    del memory
    return sum(saved.values())


def _learn_to_copy(model: Seq2Seq, steps: int = 200) -> float:
    """Train a model to copy two of 16 random symbols; return its last loss."""
    optimizer, loss = torch.optim.AdamW(model.parameters(), 1e-2), torch.zeros(())
    for _ in range(steps):
        symbols = torch.randint(2, 18, (32, 2))
        source = torch.cat((torch.zeros(32, 1, dtype=torch.long), symbols), 1)
        logits = model(source, torch.ones_like(source, dtype=torch.bool), source[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), symbols.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return loss.item()


def families(show: Demonstration) -> None:
    """R46: RNN, 1-D convolution and self-attention: who sees whom, and what has to wait for what."""
    rows, chains, seen = [], {}, {}
    for name, config in FAMILIES.items():
        torch.manual_seed(1)
        model = build(config, Vocabularies(20, 20))
        loss = _learn_to_copy(model)
        model.train(False)
        chains[name] = [measure.chain(model, count) for count in (50, 100)]
        seen[name] = measure.reach(model)["seen"]
        start = time.perf_counter()
        with torch.no_grad():
            ids = torch.zeros(8, 200, dtype=torch.long)
            model.encode(ids, torch.ones_like(ids, dtype=torch.bool))
        milliseconds = 1e3 * (time.perf_counter() - start)
        steps = measure.sequential(config)["steps"]
        rows.append((name, steps, seen[name], milliseconds, _saved_bytes(model, 200) / 1024, loss))
    columns = (
        "encoder",
        "sequential steps",
        "inputs seen of 101",
        "ms, 8 x 200 tokens",
        "KiB kept, 200 tokens",
        "loss of copying",
    )
    show.table("measured", columns, rows)
    kinds = (
        ("RNN", "ordered sequences"),
        ("1-D convolution", "grids"),
        ("self-attention", "sets, and (+) long sequences"),
    )
    show.table("made for", ("encoder", "inputs"), kinds)
    show.equal("RNN: sequential steps for n tokens", rows[0][1], "n")
    show.above("RNN: chain of dependent operations, 100 against 50 tokens", chains["RNN"][1] / chains["RNN"][0], 1.8)
    for name in ("1-D convolution", "self-attention"):
        show.equal(f"{name}: the chain does not grow with the length", chains[name][1], chains[name][0])
    show.equal("RNN, one direction: the middle token sees itself and what came before", seen["RNN"], 51)
    width = FAMILIES["1-D convolution"].convolution.kernel_size
    show.equal("convolution, 2 layers: inputs seen, 1 + 2 (k - 1)", seen["1-D convolution"], 1 + 2 * (width - 1))
    show.equal("self-attention, 1 layer: inputs seen", seen["self-attention"], 101)
    for name, *_, loss in rows:
        show.below(f"{name}: loss of copying two symbols (guessing: log 16 = {math.log(16):.2f})", loss, 1.0)


def memory(show: Demonstration) -> None:
    """R47: plain attention keeps N x N weights for the backward pass; the fused kernel does not."""
    lengths = (256, 512, 1024, 2048)

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return softmax(Dot()(q, k), None) @ v

    kinds: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "plain": plain,
        "fused": F.scaled_dot_product_attention,
    }
    kept = {name: [measure.saved_bytes(n, attend) / 2**20 for n in lengths] for name, attend in kinds.items()}
    rows = [
        (n, kept["plain"][at], kept["fused"][at], kept["plain"][at] / kept["fused"][at]) for at, n in enumerate(lengths)
    ]
    show.table(
        "MiB kept for the backward pass, 2 heads of 32", ("tokens N", "plain", "memory-efficient", "ratio"), rows
    )
    show.plot(
        "memory",
        "tokens",
        "MiB",
        {name: list(zip(map(float, lengths), values, strict=True)) for name, values in kept.items()},
    )
    show.between("plain, 2048 against 1024 tokens: N^2 gives 4", kept["plain"][-1] / kept["plain"][-2], 3.5, 4.1)
    show.between(
        "memory-efficient, 2048 against 1024 tokens: N gives 2", kept["fused"][-1] / kept["fused"][-2], 1.9, 2.1
    )
    q, k, v = (torch.randn(1, 2, 64, 32) for _ in range(3))
    show.same("and both give the same", plain(q, k, v), F.scaled_dot_product_attention(q, k, v), 1e-5)


OWN_DATA = "in 10^0, out 10^0, 10^2 examples"


def summaries(show: Demonstration) -> None:
    """R48: documents -> summaries by the same sequence-to-sequence model, scored by ROUGE."""

    def write(folder: Path) -> Written:
        draw = random.Random(2)
        words = ["red", "blue", "green", "cat", "dog", "bird", "sat", "ran", "sang", "old", "new", "tall"]
        rows = [draw.choices(words, k=9) for _ in range(400)]
        text = "document\tsummary\n" + "".join(f"{' '.join(row)}\t{row[0]} {row[1]}\n" for row in rows)
        (folder / "documents.tsv").write_text(text)
        return folder / "documents.tsv", None

    shape = [
        f"model.transformer.{setting}"
        for setting in ("dim=32", "heads=2", "hidden=48", "depth=2", "dropout=0", "embedding_dropout=0")
    ]
    trained = train_model(write, "summarisation", 120, *shape, "batch_tokens=1200", "data.tokenizer=words")
    trained.show(show, "rouge1", "rouge2", "rougeL")
    document = "old bird sang red blue dog ran new cat"
    prediction = trained.model(document)
    show.table("a new document", ("document", "summary"), [(document, prediction.text)])
    show.figure("attention", "summary over document", AttentionFigure.of(prediction))
    show.table("published data, orders of magnitude", ("data", "tokens in", "tokens out", "examples"), PUBLISHED)
    own = next(line for line in length_table([(9, 2)] * 400) if line.startswith("your data"))
    show.equal("the data of this row in that table, as `saccade train` prints them", own.split(maxsplit=2)[2], OWN_DATA)
    scores = rouge(["old bird sang"], ["old bird"])
    for name, value in (("rouge1", 80.0), ("rouge2", 200 / 3), ("rougeL", 80.0)):
        show.close(
            f"{name} of 'old bird sang' against 'old bird': F of precision and recall", scores[name].value, value, 1e-6
        )
    show.equal("summary: what the document begins with", prediction.text, "old bird")
    show.above("ROUGE-L on validation documents", trained.metrics["rougeL"], 80)


def universal(show: Demonstration) -> None:
    """R49: the Universal Transformer repeats one block; each token halts by itself."""
    counts = {}
    for depth in (1, 2, 6, 12):
        config = UniversalConfig(dim=16, heads=2, hidden=24, depth=depth, decoder_depth=depth)
        counts[depth] = sum(value.numel() for value in UniversalTranslator(config, Vocabularies(30, 30)).parameters())
    show.table("parameters", ("steps at most", "parameters"), list(counts.items()))
    show.equal("different numbers of parameters for 1, 2, 6 and 12 steps", len(set(counts.values())), 1)
    shape = ("dim=32", "hidden=64", "depth=6", "decoder_depth=4", "heads=2", "dropout=0", "embedding_dropout=0")
    trained = train_model(
        _write_chinese,
        "translation",
        200,
        "model.architecture=universal",
        *(f"model.universal.{setting}" for setting in shape),
        *("batch_tokens=400", "label_smoothing=0"),
    )
    prediction = trained.model("機器學習")
    show.note(f"$ {trained.command}")
    for scores in prediction.token_scores:
        rows = list(zip(scores.axis.labels, scores.values, strict=True))
        show.table(f"{scores.axis.role}: {scores.name} of each token", ("token", "steps"), rows)
    steps = [value for scores in prediction.token_scores for value in scores.values]
    show.equal("機器學習", prediction.text, "machine learning")
    show.equal("sides whose steps are shown", len(prediction.token_scores), 2)
    if min(steps) == max(steps):
        show.note(f"These sentences are so simple that every token halts after {steps[0]:.0f} steps.")
    _halting(show)


@torch.no_grad()
def _halting(show: Demonstration) -> None:
    """Let random tokens halt by random probabilities, and compare with the sums of these probabilities."""
    torch.manual_seed(1)
    stack = Universal(TransformerConfig(dim=16, heads=2, hidden=24), steps=6)
    stack.halt.weight.normal_()
    probabilities: list[Tensor] = []
    hook = stack.halt.register_forward_hook(lambda _, given, y: probabilities.append(torch.sigmoid(y[0, :, 0])))
    _, halting = stack(torch.randn(1, 8, 16))
    hook.remove()
    sums, steps = torch.stack(probabilities).cumsum(0), halting.steps[0].int().tolist()  # (6, 8)
    rows = [(f"token {n + 1}", steps[n], *(f"{p[n]:.2f}" for p in probabilities)) for n in range(8)]
    columns = ("", "steps", *(f"p_{n}" for n in range(1, 7)))
    show.table("halting probabilities of eight tokens, with random weights", columns, rows)
    expected = [min(6, int((column <= stack.threshold).sum()) + 1) for column in sums.T]
    show.equal(f"a token halts when its probabilities sum to {stack.threshold}, or after 6 steps", steps, expected)
    show.above("tokens halt by themselves: most steps - fewest", max(steps) - min(steps), 0)


@cache
def _generator() -> Trained:
    return train_model(
        lambda folder: (pictures.write_classes(folder), None),
        "image_generation",
        60,
        "size=16",
        "batch_size=24",
        *("model.noise=8", "model.generator_width=16", "model.discriminator_width=16", "discriminator_steps=1"),
    )


def gan(show: Demonstration) -> None:
    """R50: a GAN with self-attention in both networks; where a cell of a generated picture looks."""
    trained = _generator()
    trained.show(show, "frechet_distance", "floor", "untrained")
    networks = trained.model.task.networks()
    for name in ("generator", "discriminator"):
        modules = [module for module in networks[name].modules() if isinstance(module, GridAttention)]
        show.above(f"{name}: self-attention modules", len(modules), 0)
    prediction = trained.model(seed=3, attention=True)
    name, attention = next(iter(prediction.attention.items()))
    show.figure(name, "where the cells of the generated picture look", AttentionFigure.of(prediction))
    sums = attention.weights.sum(-1)
    show.close("weights of a cell sum to", [sums.min().item(), sums.max().item()], [1.0, 1.0], 1e-4)
    show.below(
        "Frechet distance, trained / untrained", trained.metrics["frechet_distance"] / trained.metrics["untrained"], 1.0
    )


ROWS = (
    Row("R44", "Encoder-decoder translation: 機器學習 -> machine learning", translation, 6, also="saccade demo dates"),
    Row("R46", "RNN, 1-D convolution and self-attention, measured", families, 12, also="saccade compare PAIRS.tsv"),
    Row("R47", "Self-attention is memory-intensive: N^2, and how to avoid it", memory, 1),
    Row("R48", "Summarisation: every sequence-to-sequence model, ROUGE", summaries, 8),
    Row("R49", "Universal Transformer: one block repeated, halting per token", universal, 8),
    Row("R50", "Self-attention GAN", gan, 8, extras=("images",), also="saccade demo digits"),
)
