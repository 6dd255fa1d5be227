"""Generated texts for demonstrations: short documents on eight topics, and tables, questions and tags about them."""

from __future__ import annotations

import json
import random
from pathlib import Path

from saccade.demo._files import table

TOPICS = {
    "sea": (("captain", "sailor", "fisher"), ("sails", "steers"), ("boat", "ship"), ("harbour", "island")),
    "kitchen": (("cook", "baker", "waiter"), ("bakes", "cuts"), ("bread", "cake"), ("kitchen", "bakery")),
    "music": (("singer", "pianist", "drummer"), ("plays", "hears"), ("song", "waltz"), ("theatre", "studio")),
    "farm": (("farmer", "shepherd", "rider"), ("feeds", "leads"), ("horse", "sheep"), ("stable", "meadow")),
    "school": (("teacher", "student", "pupil"), ("reads", "writes"), ("book", "letter"), ("school", "library")),
    "office": (("clerk", "lawyer", "banker"), ("signs", "files"), ("contract", "report"), ("office", "bank")),
    "sports": (("runner", "swimmer", "boxer"), ("wins", "loses"), ("race", "match"), ("stadium", "arena")),
    "garden": (("gardener", "florist", "beekeeper"), ("waters", "plants"), ("rose", "tulip"), ("garden", "park")),
}
PEOPLE = ("Anna", "Boris", "Clara", "David")


def sentence(draw: random.Random, topic: str) -> str:
    """Return a sentence of a topic."""
    people, verbs, things, places = (draw.choice(words) for words in TOPICS[topic])
    forms = (
        f"the {people} {verbs} the {things} in the {places} .",
        f"in the {places} the {people} {verbs} a {things} .",
    )
    return draw.choice(forms)


def write_documents(folder: Path, count: int = 600) -> Path:
    """Write documents of four sentences on one topic each, separated by empty lines."""
    draw, path = random.Random(1), folder / "stories.txt"
    documents = []
    for number in range(count):
        topic = list(TOPICS)[number % len(TOPICS)]
        documents.append("".join(f"{sentence(draw, topic)}\n" for _ in range(4)))
    path.write_text("\n".join(documents))
    return path


def write_topics(folder: Path, count: int, seed: int = 2, name: str = "topics.csv") -> Path:
    """Write sentences with their topics."""
    draw = random.Random(seed)
    topics = [list(TOPICS)[number % len(TOPICS)] for number in range(count)]
    rows = [(sentence(draw, topic), topic) for topic in topics]
    (folder / name).write_bytes(table([("text", "label"), *rows]))
    return folder / name


def write_pairs(folder: Path, count: int = 400) -> Path:
    """Write pairs of sentences, and whether they are on the same topic."""
    draw, rows = random.Random(3), [("sentence1", "sentence2", "label")]
    for number in range(count):
        first, other = draw.sample(list(TOPICS), 2)
        same = number % 2 == 0
        rows.append((sentence(draw, first), sentence(draw, first if same else other), "same" if same else "other"))
    (folder / "pairs.csv").write_bytes(table(rows))
    return folder / "pairs.csv"


def write_tags(folder: Path, count: int = 300) -> Path:
    """Write sentences whose words have tags: the person, the thing and the place, which the position also decides."""
    draw, lines = random.Random(4), []
    for _ in range(count):
        topic = TOPICS[draw.choice(list(TOPICS))]
        names = {
            word: tag for words, tag in zip(topic, ("PER", "", "OBJ", "LOC"), strict=True) for word in words if tag
        }
        words = sentence(draw, draw.choice([name for name, value in TOPICS.items() if value is topic])).split()
        lines += [*(f"{word} {f'B-{names[word]}' if word in names else 'O'}" for word in words), ""]
    (folder / "tags.conll").write_text("\n".join(lines) + "\n")
    return folder / "tags.conll"


def write_questions(folder: Path, count: int = 300) -> Path:
    """Write questions whose answer is a span of the context, in the format of SQuAD."""
    draw, articles = random.Random(5), []
    for number in range(count):
        topic = draw.choice(list(TOPICS))
        people, verbs, things, places = (draw.choice(words) for words in TOPICS[topic])
        context = f"the {people} {verbs} the {things} in the {places} ."
        kind, answer = draw.choice((("who ?", people), ("what ?", things), ("where ?", places)))
        answers = [{"text": answer, "answer_start": context.index(answer)}]
        asked = [{"id": str(number), "question": kind, "answers": answers, "is_impossible": False}]
        articles.append({"title": str(number), "paragraphs": [{"context": context, "qas": asked}]})
    (folder / "questions.json").write_text(json.dumps({"data": articles}))
    return folder / "questions.json"


SPAM = ("Buy {} now, only {} dollars!", "You have won {}, click here and pay {} dollars.", "Free {} for you, hurry!")
HAM = ("Can we meet on {} about the {}?", "The {} report is ready, see you {}.", "Lunch on {} after the {}?")
PRIZES, DAYS, WORK = ("gold", "pills", "a car", "a prize"), ("Monday", "Friday", "Sunday"), ("budget", "talk", "exam")
MAILS = (
    ("Buy gold now, only 99 dollars!", "Spam"),
    ("You have won a prize, click here and pay 5 dollars.", "Spam"),
    ("Can we meet on Friday about the budget?", "Not Spam"),
)


def write_mails(folder: Path, count: int, seed: int, name: str = "mails.csv") -> Path:
    """Write e-mails with the labels Spam and Not Spam; those of `MAILS` are not among them."""
    draw, rows, known = random.Random(seed), [("text", "label")], {text for text, _ in MAILS}
    while len(rows) <= count:
        if len(rows) % 2:
            text, label = draw.choice(SPAM).format(draw.choice(PRIZES), draw.randint(5, 99)), "Spam"
        else:
            first, second = draw.choice(DAYS), draw.choice(WORK)
            form = draw.choice(HAM)
            text, label = (
                (form.format(second, first) if form.startswith("The") else form.format(first, second)),
                "Not Spam",
            )
        if text not in known:
            rows.append((text, label))
    (folder / name).write_bytes(table(rows))
    return folder / name
