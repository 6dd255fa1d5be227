"""Quality compared with transformers: MiniLM fine-tuned by us and by a plain loop over transformers, on the same rows.

Both use AdamW at 5e-5, 1e-3 for the new head, with 50 steps of warm-up, linear decay, weight decay 0.01, gradient
clipping and as many epochs; both are evaluated at their last step with the same metrics. Theirs reads padded batches in
random order. Scores vary by half a point between seeds: with several seeds their means are printed too.

    python bench/beside.py tagging|questions [--epochs 3] [--seeds 1,2,3]

The data: WNUT17 (train, evaluated on test), and SQuAD 2.0 with a quarter of its articles for validation.
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

import saccade
from saccade.data.formats.squad import read_squad
from saccade.data.formats.tagged import read_tagged
from saccade.data.splitting import SplitSettings
from saccade.metrics import qa
from saccade.metrics import tagging as entity_metrics
from saccade.pretrained.catalogue import get

DATA = Path(os.environ.get("SACCADE_DATA", "../shared/data"))
VALID_FRACTION = 0.25  # of the articles
MAX_LENGTH, STRIDE, MAX_ANSWER = 256, 64, 30  # tokens of a window of a context, of its overlap, of an answer


def ours(task, data, overrides, epochs, seed, test=None):
    """Return the metrics of `saccade.train`, and its seconds."""
    with tempfile.TemporaryDirectory() as root:
        start = time.perf_counter()
        run = saccade.train(
            data, task=task, root=root, base="minilm", epochs=epochs, seed=seed, overrides=overrides, progress=False
        )
        seconds = time.perf_counter() - start
        return saccade.load(run, checkpoint="last").evaluate(test), seconds


def train(model, rows, loss_of, batch_size, epochs, seed):
    """Train a model of transformers with a plain loop; return the seconds."""
    steps, generator = epochs * -(-len(rows) // batch_size), random.Random(seed)
    is_head = {name: name.startswith(("classifier.", "qa_outputs.")) for name, _ in model.named_parameters()}
    head = [value for name, value in model.named_parameters() if is_head[name]]
    encoder = [value for name, value in model.named_parameters() if not is_head[name]]
    optimizer = torch.optim.AdamW([{"params": encoder, "lr": 5e-5}, {"params": head, "lr": 1e-3}], weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 50, (steps - step) / max(1, steps - 50))
    )
    start = time.perf_counter()
    model.train()
    for _ in range(epochs):
        order = generator.sample(rows, len(rows))
        for first in range(0, len(order), batch_size):
            loss_of(order[first : first + batch_size]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
    model.eval()
    return time.perf_counter() - start


def pad(rows, value=0):
    """Return lists of ids as a padded tensor."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])


def model_inputs(encodings):
    """Return encodings as the inputs of a model of transformers."""
    return {
        "input_ids": pad([encoding.ids for encoding in encodings]),
        "token_type_ids": pad([encoding.type_ids for encoding in encodings]),
        "attention_mask": pad([encoding.attention_mask for encoding in encodings]),
    }


def tagging(epochs, seed):
    """Return entity F1 on the test set of WNUT17, ours and theirs by name, and the seconds of both."""
    from transformers import AutoModelForTokenClassification

    folder, wnut = get("minilm"), DATA / "ner" / "wnut17"
    files = wnut / "wnut17train.conll", wnut / "emerging.dev.conll", wnut / "emerging.test.annotated"
    training = read_tagged(files[0])
    test = read_tagged(files[2], tags=training.names)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    torch.manual_seed(seed)
    model = AutoModelForTokenClassification.from_pretrained(folder, num_labels=len(training.names))

    def first_tokens(encoding):
        """Return the position of the first token of each word."""
        words = encoding.word_ids
        return [at for at, word in enumerate(words) if word is not None and word != words[at - 1]]

    def loss_of(sentences):
        encodings = tokenizer.encode_batch([list(sentence.words) for sentence in sentences], is_pretokenized=True)
        labels = [[-100] * len(encoding.ids) for encoding in encodings]
        for row, encoding, sentence in zip(labels, encodings, sentences, strict=True):
            for at in first_tokens(encoding):
                row[at] = training.names.index(sentence.tags[encoding.word_ids[at]])
        return model(**model_inputs(encodings), labels=pad(labels, -100)).loss

    def predict(sentence):
        (encoding,) = tokenizer.encode_batch([list(sentence.words)], is_pretokenized=True)
        with torch.no_grad():
            best = model(**model_inputs([encoding])).logits[0].argmax(-1)
        tags = ["O"] * len(sentence.words)
        for at in first_tokens(encoding):
            tags[encoding.word_ids[at]] = training.names[best[at]]
        return tags

    their_seconds = train(model, list(training.sentences), loss_of, 32, epochs, seed)
    predictions = [predict(sentence) for sentence in test.sentences]
    theirs = entity_metrics.score_entities(predictions, [sentence.tags for sentence in test.sentences])
    metrics, seconds = ours("tagging", files[0], [f"data.valid={files[1]}"], epochs, seed, files[2])
    return {"wnut17_entity_f1": (metrics["f1"], theirs.f1.value)}, (seconds, their_seconds)


def context_positions(encoding):
    """Return the positions of the context in a window."""
    return [at for at, sequence in enumerate(encoding.sequence_ids) if sequence == 1]


def answer_positions(question, encoding):
    """Return the first and last position of the answer; 0, the class token, where it is not in this window."""
    positions = context_positions(encoding)
    if not question.answers or not positions:
        return 0, 0
    start = question.answers[0].start
    end = start + len(question.answers[0].text)
    if encoding.offsets[positions[0]][0] > start or encoding.offsets[positions[-1]][1] < end:
        return 0, 0
    inside = [at for at in positions if encoding.offsets[at][0] < end and encoding.offsets[at][1] > start]
    return inside[0], inside[-1]


@torch.no_grad()
def predict_answer(model, question, windows):
    """Return the text of the best span over all windows; empty where no answer is more likely."""
    best, text, no_answer = float("-inf"), "", float("inf")
    for encoding in windows:
        outputs = model(**model_inputs([encoding]))
        start, end, positions = outputs.start_logits[0], outputs.end_logits[0], context_positions(encoding)
        positions = torch.tensor(positions)
        no_answer = min(no_answer, float(start[0] + end[0]))
        lengths = positions[None] - positions[:, None]
        scores = start[positions][:, None] + end[positions][None]
        scores = scores.masked_fill((lengths < 0) | (lengths >= MAX_ANSWER), float("-inf"))
        if float(scores.max()) > best:
            best, span = float(scores.max()), int(scores.argmax())
            first, last = positions[span // len(positions)], positions[span % len(positions)]
            text = question.context[encoding.offsets[first][0] : encoding.offsets[last][1]]
    return text.strip() if best > no_answer else ""


def questions(epochs, seed):
    """Return exact match and F1 on validation articles of SQuAD 2.0, ours and theirs, and the seconds of both."""
    from transformers import AutoModelForQuestionAnswering

    folder, path = get("minilm"), DATA / "qa" / "squad2" / "dev-v2.0.json"
    training, valid = read_squad(path).split(SplitSettings(fraction=VALID_FRACTION))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_LENGTH, stride=STRIDE, strategy="only_second")
    torch.manual_seed(seed)
    model = AutoModelForQuestionAnswering.from_pretrained(folder)

    def windows(question):
        first = tokenizer.encode(question.question, question.context)
        return [first, *first.overflowing]

    def loss_of(rows):
        starts, ends = (torch.tensor(side) for side in zip(*(positions for _, positions in rows), strict=True))
        encodings = [encoding for encoding, _ in rows]
        return model(**model_inputs(encodings), start_positions=starts, end_positions=ends).loss

    rows = [
        (encoding, answer_positions(question, encoding))
        for question in training.questions
        for encoding in windows(question)
    ]
    their_seconds = train(model, rows, loss_of, 16, epochs, seed)
    answers = {question.id: predict_answer(model, question, windows(question)) for question in valid.questions}
    theirs = qa.score_answers(answers, valid.references())
    overrides = [f"data.valid_fraction={VALID_FRACTION}"]
    metrics, seconds = ours("question_answering", path, overrides, epochs, seed)
    pairs = {"exact": theirs.exact.value, "f1": theirs.f1.value}
    return {f"squad2_half_{name}": (metrics[name], peer) for name, peer in pairs.items()}, (seconds, their_seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["tagging", "questions"])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", default="1")
    options = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"no data in {DATA}; set SACCADE_DATA to the folder of WNUT17 and SQuAD")
    work, results = {"tagging": tagging, "questions": questions}[options.task], {}
    for seed in map(int, options.seeds.split(",")):
        metrics, (seconds, their_seconds) = work(options.epochs, seed)
        for name, pair in metrics.items():
            report(name, *pair, seed=seed, seconds=round(seconds), peer_seconds=round(their_seconds))
            results.setdefault(name, []).append(pair)
    for name, pairs in results.items():
        if len(pairs) > 1:
            report(f"{name}_mean", *(statistics.mean(side) for side in zip(*pairs, strict=True)), seeds=len(pairs))


if __name__ == "__main__":
    main()
