"""Write losses.json again: only when a change is meant to alter the numbers. `python tests/golden/regenerate.py`"""

import json
import random
import tempfile
from pathlib import Path

from saccade import api

FILE = Path(__file__).parent / "losses.json"
GPT = ["model.dim=32", "model.depth=2", "model.heads=2", "model.hidden=64", "model.max_positions=16", "batch_size=4"]
GPT += ["data.tokenizer=characters"]
BERT = ["model.dim=32", "model.depth=2", "model.heads=2", "model.hidden=64", "vocabulary_size=60", "batch_tokens=400"]
PAIRS = ["batch_tokens=400", "data.vocabulary_size=300", "data.tokenizer=bpe"]
PAIRS += [
    f"model.transformer.{setting}" for setting in ("dim=32", "depth=1", "decoder_depth=1", "heads=2", "hidden=64")
]
CASES = {  # name: task, overrides
    "default": ("language_model", GPT),
    "dropout and averaging": ("language_model", [*GPT, "model.dropout=0.1", "train.average=0.9", "micro_batches=2"]),
    "adamw, clipped": (
        "language_model",
        [*GPT, "train.optim.kind=adamw", "train.optim.lr=3e-3", "train.optim.clip=1.0"],
    ),
    "gpt2": (
        "language_model",
        [*GPT, "model.norm=layer", "model.position=learned", "model.bias=true", "model.tie_embeddings=true"],
    ),
    "llama": (
        "language_model",
        [*GPT, "model.activation=swiglu", "model.norm=rms", "model.kv_heads=1", "model.score=scaled_dot"],
    ),
    "translation": ("translation", PAIRS),
    "translation, r-drop": ("translation", [*PAIRS, "consistency=1", "micro_batches=2"]),
    **{
        f"translation, {name}": ("translation", [*PAIRS, f"model.architecture={name}"])
        for name in ("rnn", "rnn+attention", "convolution", "universal", "decoder")
    },
    "summarisation": ("summarisation", [*PAIRS, "search.no_repeat_ngram_size=0"]),
    "masked_language_model": ("masked_language_model", [*BERT, "max_length=32", "micro_batches=2"]),
    "text_classification": ("text_classification", [*BERT, "class_weights=balanced", "micro_batches=2"]),
    "regression": ("regression", BERT),
    "sentence_vectors": ("sentence_vectors", BERT),
    "tagging": ("tagging", [*BERT, "micro_batches=2"]),
    "question_answering": ("question_answering", [*BERT, "max_length=64", "stride=8"]),
}


def write_data(task: str, folder: Path) -> Path:
    """Write a small generated file that the task can learn from."""
    if task == "language_model":
        path = folder / "text.txt"
        path.write_text("".join(chr(97 + i * i * 7 % 26) + ("\n" if i % 9 == 0 else "") for i in range(3000)))
        return path
    draw = random.Random(3)
    words = ["red", "blue", "cat", "dog", "sat", "ran", "the", "a"]
    lines = [" ".join(draw.choices(words, k=draw.randint(4, 9))) + "." for _ in range(200)]
    path = folder / "text.txt"
    if task in ("translation", "summarisation"):
        path, lines = folder / "pairs.tsv", [f"{line}\t{line.upper()}" for line in lines]
    elif task == "text_classification":
        rows = (f"{line}\t{'pet' if 'cat' in line else 'none'}" for line in lines)
        path, lines = folder / "rows.tsv", ["text\tlabel", *rows]
    elif task in ("regression", "sentence_vectors"):
        others = [line if draw.random() < 0.5 else draw.choice(lines) for line in lines]
        pairs = zip(lines, others, strict=True)
        rows = (f"{first}\t{second}\t{len(set(first) & set(second)) / 10}" for first, second in pairs)
        path, lines = folder / "rows.tsv", ["sentence1\tsentence2\tscore", *rows]
    elif task == "tagging":
        sentences = ([f"{w} {'B-PET' if w == 'cat' else 'O'}" for w in line.strip(".").split()] for line in lines)
        path, lines = folder / "words.conll", [line for sentence in sentences for line in (*sentence, "")]
    elif task == "question_answering":
        path, lines = (
            folder / "questions.json",
            [json.dumps({"data": [_article(number, line) for number, line in enumerate(lines)]})],
        )
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def _article(number: int, line: str) -> dict:
    """Return an article of one paragraph with one question, whose answer is the word after "the"."""
    start = line.find("the ") + 4
    answers = [{"text": line[start:].split()[0].strip("."), "answer_start": start}] if 4 <= start < len(line) else []
    question = {"id": str(number), "question": "the what?", "answers": answers, "is_impossible": not answers}
    return {"title": str(number), "paragraphs": [{"context": line, "qas": [question]}]}


def losses(case: str) -> list[float]:
    """Return the losses of ten steps."""
    task, overrides = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        data = write_data(task, Path(folder))
        run = api.train(data, task=task, root=folder, overrides=[*overrides, "train.steps=10"], progress=False)
        return [record["loss"] for record in run.history if "lr_scale" in record]


if __name__ == "__main__":
    FILE.write_text(json.dumps({case: losses(case) for case in CASES}, indent=1) + "\n")
