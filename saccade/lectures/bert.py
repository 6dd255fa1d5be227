"""BERT, R51 to R56: masked language modelling, next sentences, fine-tuning, features of layers, words in context."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path

from saccade.core import Split
from saccade.data.masking import Masker, Masking
from saccade.lectures import _texts as texts
from saccade.lectures._row import Demonstration, Row
from saccade.lectures._training import Trained, Written, new_folder, train_model
from saccade.look.features import compare_layers, encoder_of, vectors, word_similarity
from saccade.look.figure import AttentionFigure

TUNE = ("train.optim.lr=2e-3", "train.optim.new_head_lr=5e-3", "train.optim.warmup=5")
SHAPE = ("model.dim=48", "model.depth=4", "model.heads=2", "model.hidden=96", "vocabulary_size=200")
LOOP = ("max_length=48", "batch_tokens=1200", "train.optim.warmup=20")
MASKED = "the captain sails the [MASK] in the harbour ."
PAIR = ("the captain sails the boat in the harbour .", "in the island the sailor steers a ship .")
OTHER = "in the kitchen the baker cuts a cake ."
# F1 on the development set of CoNLL-2003, in the BERT paper
PUBLISHED = {
    "first": 91.0,
    "last": 94.9,
    "sum": 95.5,
    "second_to_last": 95.6,
    "sum_last_4": 95.9,
    "concat_last_4": 96.1,
}


@cache
def pretrained() -> Trained:
    """Return a small BERT that was pretrained on generated documents."""
    return train_model(
        lambda folder: (texts.write_documents(folder), None), "masked_language_model", 250, *SHAPE, *LOOP
    )


def masked_words(show: Demonstration) -> None:
    """R51: 15% of the tokens are masked and predicted; T7: as [MASK] alone, or by the 80/10/10 rule of BERT."""
    trained = pretrained()
    trained.show(show, "loss", "accuracy", "most_frequent")
    prediction = trained.model(MASKED, attention=True)
    show.table(MASKED, ("word", "probability"), list(prediction.scores.items()))
    show.figure("attention", MASKED, AttentionFigure.of(prediction))
    encoder = encoder_of(trained.model.task)
    ids = list(encoder.tokenizer.encode("the captain sails the boat in the harbour . " * 3))
    rows, rules = [], tuple[Masking, ...](("80_10_10", "mask_only"))
    for masking in rules:
        masker = Masker(encoder.template.mask_id or 0, encoder.tokenizer.size, 0.15, masking, None, frozenset())
        chosen = masked = kept = 0
        for seed in range(2000):
            inputs, labels = masker.mask(ids, seed)
            positions = [at for at, label in enumerate(labels) if label >= 0]
            chosen += len(positions)
            masked += sum(inputs[at] == masker.mask_id for at in positions)
            kept += sum(inputs[at] == ids[at] for at in positions)
        share = chosen / (2000 * len(ids))
        rows.append((masking, 100 * share, 100 * masked / chosen, 100 * kept / chosen))
        show.close(f"{masking}: tokens to predict, %", 100 * share, 15.0, 1.0)
        expected = 80.0 if masking == "80_10_10" else 100.0
        show.close(f"{masking}: of these become [MASK], %", 100 * masked / chosen, expected, 1.5)
    show.table("masking (this model: 80_10_10)", ("rule", "chosen, %", "[MASK], %", "unchanged, %"), rows)
    show.holds(
        "the most likely word is a thing of the sea",
        max(prediction.scores, key=lambda word: prediction.scores[word]) in ("boat", "ship"),
    )
    show.above(
        "masked tokens that are right, %, above always the most frequent one",
        trained.metrics["accuracy"] - trained.metrics["most_frequent"],
        10,
    )


def next_sentence(show: Demonstration) -> None:
    """R52: does B follow A? Half of the pairs do."""
    trained = pretrained()
    trained.show(show, "next_sentence")
    follows_by = {second: trained.model(PAIR[0], second).scores["follows"] for second in (PAIR[1], OTHER)}
    rows = [(PAIR[0], second, probability) for second, probability in follows_by.items()]
    show.table("does B follow A?", ("A", "B", "probability"), rows)
    show.above("pairs that are told apart, %", trained.metrics["next_sentence"], 60)
    show.above("probability for the same topic - for another topic", rows[0][2] - rows[1][2], 0.05)
    task = trained.model.task
    task.load_data(trained.path.parent / "data" / "stories.txt")
    examples = task.source(Split.TRAIN, 1).examples  # type: ignore[attr-defined]
    follows = [examples.at(position).follows for position in range(1000)]
    show.close("training pairs in which B follows A, %", 100 * sum(follows) / len(follows), 50.0, 15.0)


def spam(show: Demonstration) -> None:
    """R53: two steps: first semi-supervised on text without labels, then supervised on few labels."""

    def write_unlabelled(folder: Path) -> tuple[Path, None]:
        with texts.write_mails(folder, 400, 7).open(encoding="utf-8") as file:
            mails = [row["text"] for row in csv.DictReader(file)]
        (folder / "mails.txt").write_text("".join(f"{mail}\n" for mail in mails))
        return folder / "mails.txt", None

    first = train_model(write_unlabelled, "masked_language_model", 60, *SHAPE, *LOOP, "next_sentence=false")
    second = train_model(
        lambda folder: (texts.write_mails(folder, 60, 8), texts.write_mails(folder, 60, 9, "valid.csv")),
        "text_classification",
        40,
        f"base={first.path}",
        "batch_tokens=400",
        *TUNE,
    )
    show.note(f"1. $ {first.command}")
    show.note(f"2. $ {second.command}")
    rows = []
    for text, label in texts.MAILS:
        prediction = second.model(text)
        rows.append((text, prediction.text, 100 * max(prediction.scores.values())))
        show.equal(text, prediction.text, label)
    show.table("three e-mails", ("e-mail", "label", "probability, %"), rows)
    show.above("accuracy on new e-mails, %", second.metrics["accuracy"], 90)


def _alone(write: Callable[[Path], Path]) -> Callable[[Path], Written]:
    """Return a writer without validation data."""
    return lambda folder: (write(folder), None)


def fine_tuning(show: Demonstration) -> None:
    """R54: one pretrained encoder, four data formats, four scores."""
    base = f"base={pretrained().path}"
    jobs: tuple[tuple[str, str, Callable[[Path], Path], str, float, int], ...] = (
        (
            "a sentence and its label",
            "text_classification",
            lambda folder: texts.write_topics(folder, 400),
            "accuracy",
            80.0,
            60,
        ),
        ("two sentences and their label", "text_classification", texts.write_pairs, "accuracy", 75.0, 150),
        ("a question, a context and a span", "question_answering", texts.write_questions, "f1", 80.0, 60),
        ("words and their tags", "tagging", texts.write_tags, "f1", 90.0, 60),
    )
    rows = []
    for name, task, write, score, least, steps in jobs:
        trained = train_model(_alone(write), task, steps, base, "batch_tokens=800", *TUNE)
        others = ", ".join(
            f"{key} {value:.1f}" for key, value in trained.metrics.items() if key in ("exact", "precision", "recall")
        )
        rows.append((name, trained.command.split()[2], task, f"{score} {trained.metrics[score]:.1f}", others))
        show.above(f"{name}: {score}, %", trained.metrics[score], least)
    show.table("one encoder, four tasks", ("data", "file", "task", "score", "and"), rows)


def features(show: Demonstration) -> None:
    """R55: features from frozen layers: which ones should we use? T8: the order counts, not the values."""
    encoder = encoder_of(pretrained().model.task)
    scores = compare_layers(encoder, texts.write_tags(new_folder(), 200))
    rows = [(result.layers, result.width, result.score, PUBLISHED[result.layers]) for result in scores]
    show.table(
        "a linear classifier of tags over each choice of layers", ("layers", "width", "F1 here", "F1 published"), rows
    )
    show.note(
        "Published: BERT-Base on CoNLL-2003, under a BiLSTM. On your data: saccade features MODEL DATA --compare."
    )
    by_layers = {result.layers: result for result in scores}
    _compare_order(show, {name: result.score for name, result in by_layers.items()})
    show.equal("choices of layers", sorted(by_layers), sorted(PUBLISHED))
    contextual = min(result.score for name, result in by_layers.items() if name != "first")
    show.above(
        "the embeddings are the worst choice, as published: distance, F1", contextual - by_layers["first"].score, 0.0
    )
    show.equal("width of four layers, concatenated", by_layers["concat_last_4"].width, 4 * 48)


def _compare_order(show: Demonstration, scores: Mapping[str, float]) -> None:
    """Say which pairs of choices are in the published order here, and check what a small model can show."""
    pairs = list(combinations(sorted(PUBLISHED, key=PUBLISHED.__getitem__), 2))  # the worse one first
    equal = [f"{low} = {high}" for low, high in pairs if scores[low] == scores[high]]
    reversed_pairs = [f"{low} > {high}" for low, high in pairs if scores[low] > scores[high]]
    same = len(pairs) - len(equal) - len(reversed_pairs)
    show.note(
        f"Of {len(pairs)} pairs of choices {same} are in the published order here, {len(equal)} are equal "
        f"({', '.join(equal) or 'none'}), {len(reversed_pairs)} are reversed ({', '.join(reversed_pairs) or 'none'}). "
        "Checked is what a model of four layers and a few hundred words can show; the order of the others is not."
    )
    mixtures = [scores[name] for name in ("sum", "sum_last_4", "concat_last_4")]
    show.holds("no mixture of layers is worse than the last layer alone, as published", min(mixtures) >= scores["last"])


def in_context(show: Demonstration) -> None:
    """R56: the same word in two contexts has two vectors."""
    encoder = encoder_of(pretrained().model.task)
    sea = ("the captain sails the boat in the harbour .", "the sailor steers the ship in the island .")
    other = "the cook bakes the bread in the kitchen ."
    rows = []
    for layers in ("first", "second_to_last", "last"):
        near, far = (word_similarity(encoder, (sea[0], text), "the", layers) for text in (sea[1], other))
        rows.append((layers, near, far))
    show.table('cosine of the first word "the" in two sentences', ("layer", "both on the sea", "sea and kitchen"), rows)
    show.close(
        "the same text has the same vector: cosine",
        word_similarity(encoder, (sea[0], sea[0]), "the", "last"),
        1.0,
        1e-4,
    )
    show.below("other contexts, last layer: cosine", rows[-1][2], 0.99)
    show.below("before any layer the context does not count: cosine differs from 1 by", 1 - rows[0][2], 1e-3)
    show.above("a similar context is nearer: difference of the cosines", rows[-1][1] - rows[-1][2], 0.0)
    one, two = (entry.values for entry in vectors(encoder, [sea[0], other]))
    show.above("distance of the two sentence vectors", (one - two).norm().item(), 0.1)


ROWS = (
    Row("R51", "Masked language modelling: 15% of the tokens", masked_words, 20),
    Row("R52", "Next sentence prediction", next_sentence, 20),
    Row("R53", "Two steps: pretrained on text, then spam or not spam", spam, 10),
    Row("R54", "Fine-tuning: sentence, pair, question answering, tagging", fine_tuning, 35),
    Row("R55", "Features from frozen layers: which ones should we use?", features, 25),
    Row("R56", "Contextual embeddings: the same word, two contexts, two vectors", in_context, 20),
)
