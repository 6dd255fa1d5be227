"""Quality beside transformers: MiniLM fine-tuned by us and by a plain loop over transformers, on the same rows.

Both take AdamW at 5e-5, 1e-3 for the new layer, with 50 steps of warm-up, a linear way down, weight decay 0.01, clipped
gradients and as many epochs; both are scored at their last step, by the same counting. Theirs reads padded batches in
random order. Scores of one seed differ by half a point from those of the next: with several their means are printed.

    python bench/beside.py tagging|questions [--epochs 3] [--seeds 1,2,3]

The data: WNUT17 (train, scored on test), and SQuAD 2.0 with a quarter of its articles held back.
"""

import argparse
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch
from interleaved import report
from tokenizers import Tokenizer

from saccade import api
from saccade.data.formats.squad import read_squad
from saccade.data.formats.tagged import read_tagged
from saccade.data.splitting import SplitSettings
from saccade.metrics import qa
from saccade.metrics import tagging as entity_metrics
from saccade.pretrained.catalogue import get

DATA = Path(os.environ.get("SACCADE_DATA", "../shared/data"))
HELD = 0.25  # of the articles
LONGEST, STRIDE, ANSWER = 256, 64, 30  # tokens of a row of questions, that neighbours share, of an answer


def ours(task, data, words, epochs, seed, test=None):
    """Scores of `saccade train`, and the seconds it took."""
    said = ["base=minilm", f"train.epochs={epochs}", f"train.seed={seed}", *words]
    with tempfile.TemporaryDirectory() as root:
        began = time.perf_counter()
        trained = api.train(data, said, task=task, root=root)
        seconds = time.perf_counter() - began
        opened = api.load(trained.run.folder, which="last")
        return api.evaluate(opened, test or data, whole=test is not None), seconds


def train(model, rows, loss_of, size, epochs, seed):
    """The usual loop over transformers; how many seconds it took."""
    steps, draw = epochs * -(-len(rows) // size), random.Random(seed)
    fresh = [value for name, value in model.named_parameters() if name.startswith(("classifier.", "qa_outputs."))]
    rest = [value for name, value in model.named_parameters() if not name.startswith(("classifier.", "qa_outputs."))]
    optimizer = torch.optim.AdamW([{"params": rest, "lr": 5e-5}, {"params": fresh, "lr": 1e-3}], weight_decay=0.01)
    slope = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda at: min((at + 1) / 50, (steps - at) / max(1, steps - 50))
    )
    began = time.perf_counter()
    model.train()
    for _ in range(epochs):
        order = draw.sample(rows, len(rows))
        for first in range(0, len(order), size):
            loss_of(order[first : first + size]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            slope.step()
    model.eval()
    return time.perf_counter() - began


def padded(rows, fill=0):
    """Lists of numbers as a rectangle."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def inputs(encoded):
    """Encodings as what a model of transformers takes."""
    return {
        "input_ids": padded([one.ids for one in encoded]),
        "token_type_ids": padded([one.type_ids for one in encoded]),
        "attention_mask": padded([one.attention_mask for one in encoded]),
    }


def tagging(epochs, seed):
    """Entity F1 on the test part of WNUT17: ours and theirs by name, and the seconds of both."""
    from transformers import AutoModelForTokenClassification

    folder, place = get("minilm"), DATA / "ner" / "wnut17"
    files = place / "wnut17train.conll", place / "emerging.dev.conll", place / "emerging.test.annotated"
    learned = read_tagged(files[0])
    test = read_tagged(files[2], like=learned)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    torch.manual_seed(seed)
    model = AutoModelForTokenClassification.from_pretrained(folder, num_labels=len(learned.names))

    def firsts(encoded):
        """The place of the first piece of each word."""
        numbers = encoded.word_ids
        return [at for at, word in enumerate(numbers) if word is not None and word != numbers[at - 1]]

    def loss_of(sentences):
        encoded = tokenizer.encode_batch([list(one.words) for one in sentences], is_pretokenized=True)
        labels = [[-100] * len(one.ids) for one in encoded]
        for row, one, sentence in zip(labels, encoded, sentences, strict=True):
            for at in firsts(one):
                row[at] = learned.names.index(sentence.tags[one.word_ids[at]])
        return model(**inputs(encoded), labels=padded(labels, -100)).loss

    def tags(sentence):
        (encoded,) = tokenizer.encode_batch([list(sentence.words)], is_pretokenized=True)
        with torch.no_grad():
            best = model(**inputs([encoded])).logits[0].argmax(-1)
        found = ["O"] * len(sentence.words)
        for at in firsts(encoded):
            found[encoded.word_ids[at]] = learned.names[best[at]]
        return found

    seconds = train(model, list(learned.sentences), loss_of, 32, epochs, seed)
    theirs = entity_metrics.score_entities([tags(one) for one in test.sentences], [one.tags for one in test.sentences])
    scores, took = ours("tagging", files[0], [f"data.valid={files[1]}"], epochs, seed, files[2])
    return {"wnut17_entity_f1": (scores["f1"], theirs.f1.value)}, (took, seconds)


def questions(epochs, seed):
    """Exact match and F1 on the articles of SQuAD 2.0 that were held back: ours and theirs, and the seconds of both."""
    from transformers import AutoModelForQuestionAnswering

    folder, path = get("minilm"), DATA / "qa" / "squad2" / "dev-v2.0.json"
    learned, held = read_squad(path).split(SplitSettings(fraction=HELD))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST, stride=STRIDE, strategy="only_second")
    torch.manual_seed(seed)
    model = AutoModelForQuestionAnswering.from_pretrained(folder)

    def windows(question):
        first = tokenizer.encode(question.question, question.context)
        return [first, *first.overflowing]

    def inside(encoded):
        """The places of the context."""
        return [at for at, part in enumerate(encoded.sequence_ids) if part == 1]

    def answer(question, encoded):
        """First and last place of the answer; the begin mark where it is not in this window."""
        places = inside(encoded)
        if not question.answers or not places:
            return 0, 0
        start = question.answers[0].start
        end = start + len(question.answers[0].text)
        if encoded.offsets[places[0]][0] > start or encoded.offsets[places[-1]][1] < end:
            return 0, 0
        held = [at for at in places if encoded.offsets[at][0] < end and encoded.offsets[at][1] > start]
        return held[0], held[-1]

    def loss_of(rows):
        starts, ends = (torch.tensor(side) for side in zip(*(place for _, place in rows), strict=True))
        return model(**inputs([encoded for encoded, _ in rows]), start_positions=starts, end_positions=ends).loss

    @torch.no_grad()
    def said(question):
        best, text, none = float("-inf"), "", float("inf")
        for encoded in windows(question):
            found = model(**inputs([encoded]))
            start, end, places = found.start_logits[0], found.end_logits[0], torch.tensor(inside(encoded))
            none = min(none, float(start[0] + end[0]))
            apart = places[None] - places[:, None]
            total = start[places][:, None] + end[places][None]
            total = total.masked_fill((apart < 0) | (apart >= ANSWER), float("-inf"))
            if float(total.max()) > best:
                best, at = float(total.max()), int(total.argmax())
                first, last = places[at // len(places)], places[at % len(places)]
                text = question.context[encoded.offsets[first][0] : encoded.offsets[last][1]]
        return text.strip() if best > none else ""

    rows = [(encoded, answer(one, encoded)) for one in learned.questions for encoded in windows(one)]
    seconds = train(model, rows, loss_of, 16, epochs, seed)
    theirs = qa.score_answers({one.id: said(one) for one in held.questions}, held.wanted())
    scores, took = ours("question_answering", path, [f"data.fraction={HELD}"], epochs, seed)
    pairs = {"exact": theirs.exact.value, "f1": theirs.f1.value}
    return {f"squad2_half_{name}": (scores[name], peer) for name, peer in pairs.items()}, (took, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["tagging", "questions"])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", default="1")
    options = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"no data in {DATA}; say where WNUT17 and SQuAD are with SACCADE_DATA")
    work, pairs = {"tagging": tagging, "questions": questions}[options.task], {}
    for seed in map(int, options.seeds.split(",")):
        found, (took, theirs) = work(options.epochs, seed)
        for name, pair in found.items():
            report(name, *pair, seed=seed, seconds=round(took), peer_seconds=round(theirs))
            pairs.setdefault(name, []).append(pair)
    for name, several in pairs.items():
        if len(several) > 1:
            report(f"{name}_mean", *(statistics.mean(side) for side in zip(*several, strict=True)), seeds=len(several))


if __name__ == "__main__":
    main()
