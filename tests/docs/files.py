"""Small files that pages of the documentation take for granted, such as `pairs.tsv`, by their names."""

import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

from saccade.demo.cartpole import write_cartpole
from saccade.demo.dates import write_dates
from saccade.demo.maze import write_frames, write_instructions
from tests.data.audio import sounds
from tests.tasks.picture_data import COLOURS, PLACES, scene

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
MOLECULES = ("C", "CC", "CCO", "c1ccccc1", "CC(=O)O", "CN", "CCN", "COC", "C1CCCCC1", "O=C=O", "Cc1ccccc1", "CCl")


def write_file(folder: Path, name: str) -> None:
    """Write the file or folder of that name."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    FILES[name](path, random.Random(name))


def _pairs(path: Path, rng: random.Random) -> None:
    rows = [rng.choices(WORDS, k=rng.randint(2, 5)) for _ in range(120)]
    lines = [f"{' '.join(row)} {number}\t{' '.join(reversed(row))} {number}\n" for number, row in enumerate(rows)]
    path.write_text("source\ttarget\n" + "".join(lines))


def _mails(path: Path, rng: random.Random) -> None:
    texts = {"spam": "You have won prize number", "ham": "The meeting is moved to room"}
    rows = [(text, number, label) for number in range(60) for label, text in texts.items()]
    path.write_text("text,label\n" + "".join(f"{text} {number},{label}\n" for text, number, label in rows))


def _similar(path: Path, rng: random.Random) -> None:
    rows = [rng.choices(WORDS, k=4) for _ in range(80)]
    lines = [f"{row[0]} {row[1]} {n},{row[2]} {row[3]} {n},{rng.random():.2f}\n" for n, row in enumerate(rows)]
    path.write_text("first,second,score\n" + "".join(lines))


def _book(path: Path, rng: random.Random) -> None:
    lines = (f"It was a {rng.choice(WORDS)} night, and {rng.choice(WORDS)} men sat by the fire.\n" for _ in range(300))
    path.write_text("".join(lines))


def _books(path: Path, rng: random.Random) -> None:
    path.mkdir()
    for name in ("first.txt", "second.txt"):
        _book(path / name, rng)


def _chats(path: Path, rng: random.Random) -> None:
    with path.open("w") as file:
        for number in range(80):
            question, answer = (
                f"Be brief. Is {rng.choice(WORDS)} less than {number}, or green? Go.",
                rng.choice(["Yes.", "No."]),
            )
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            file.write(json.dumps({"messages": messages}) + "\n")


def _broken(path: Path, rng: random.Random) -> None:
    """A comma is missing in the third line."""
    path.write_text('{"text": "one"}\n{"text": "two"}\n{"text": "3" "note": ""}\n')


def _tags(path: Path, rng: random.Random) -> None:
    sentences = [[f"{word} {'B-N' if word < 'o' else 'O'}\n" for word in rng.choices(WORDS, k=4)] for _ in range(60)]
    path.write_text("".join("".join(sentence) + "\n" for sentence in sentences))


def _questions(path: Path, rng: random.Random) -> None:
    articles = []
    for number in range(40):
        name = rng.choice(["Ann", "Bob", "Eve"])
        answers = [{"text": name, "answer_start": len("It was written by ")}]
        question = {"id": str(number), "question": "Who wrote it?", "answers": answers}
        context = f"It was written by {name} in {1900 + number}."
        articles.append({"title": str(number), "paragraphs": [{"context": context, "qas": [question]}]})
    path.write_text(json.dumps({"version": "1.1", "data": articles}))


def _dates(path: Path, rng: random.Random) -> None:
    write_dates(path.parent, train_rows=300, valid_rows=30)


def _walks(path: Path, rng: random.Random) -> None:
    write_instructions(path.parent / "maze", train_rows=60, valid_rows=5)
    (path.parent / "maze" / "train.jsonl").rename(path)
    (path.parent / "maze" / "examples" / "1.json").rename(path.parent / "world.json")


def _frames(path: Path, rng: random.Random) -> None:
    write_frames(path.parent, train_rows=8, valid_rows=3)
    (path.parent / "frame.png").write_bytes(next((path.parent / "frames").glob("*.png")).read_bytes())


def _episodes(path: Path, rng: random.Random) -> None:
    write_cartpole(path.parent, episodes=3)
    (path.parent / "expert.csv").rename(path)


def _citations(path: Path, rng: random.Random) -> None:
    """A folder of nodes and edges, and one of its nodes with another in `graph.json`."""
    path.mkdir()
    ids = [str(1061127 + number) for number in range(40)]
    splits = ("train", "train", "valid", "test")
    rows = [
        f"{name},{number % 2},{rng.random() + number % 2:.2f},{splits[number % 4]}\n" for number, name in enumerate(ids)
    ]
    (path / "nodes.csv").write_text(
        "id,label,weight,split\n" + "".join(rows).replace(",0,", ",theory,").replace(",1,", ",vision,")
    )
    edges = [(a, b) for a in ids for b in ids if a < b and rng.random() < 0.1]
    (path / "edges.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in edges))
    nodes = [{"id": ids[number], "weight": 0.5} for number in range(3)]
    graph = {"nodes": nodes, "edges": [{"source": ids[0], "target": ids[1]}, {"source": ids[1], "target": ids[2]}]}
    (path.parent / "graph.json").write_text(json.dumps(graph))


def _tu_graphs(path: Path, rng: random.Random) -> None:
    """Rings, with and without a chord, as GIN publishes its graphs."""
    lines = ["40"]
    for number in range(40):
        size, label = rng.randint(4, 7), number % 2
        chord = {0: [2], 2: [0]} if label else {}
        lines.append(f"{size} {label}")
        for node in range(size):
            others = [(node - 1) % size, (node + 1) % size, *chord.get(node, [])]
            lines.append(" ".join(map(str, [node % 2, len(others), *others])))
    path.write_text("".join(f"{line}\n" for line in lines))


def _molecules(path: Path, rng: random.Random) -> None:
    """Molecules with a label, or with their number of characters as a number."""
    column, value = ("logS", len) if path.stem == "esol" else ("p_np", lambda text: len(text) % 2)
    texts = [f"{chain}{molecule}" for molecule in MOLECULES for chain in ("", "C", "CC", "CCC")]
    path.write_text(
        f"smiles,{column}\n" + "".join(f"{text},{value(text)}{'.5' * (column == 'logS')}\n" for text in texts)
    )


def _photos(path: Path, rng: random.Random) -> None:
    """A folder of two classes."""
    for place in PLACES:
        (path / place).mkdir(parents=True)
        for number in range(12):
            scene(rng.choice(list(COLOURS)), place, 200 + number).save(path / place / f"{number}.png")


def _photo(path: Path, rng: random.Random) -> None:
    scene("red", "left").save(path)


def _image_table(path: Path, rng: random.Random) -> None:
    """A table of pictures with captions, or with questions and answers."""
    rows = []
    for number in range(24):
        colour, place = rng.choice(list(COLOURS)), rng.choice(list(PLACES))
        picture = path.parent / path.stem / f"{number}.png"
        picture.parent.mkdir(exist_ok=True)
        scene(colour, place, 200 + number).save(picture)
        texts = f"a {colour} square on the {place}" if path.stem == "captions" else f"what colour is it?,{colour}"
        rows.append(f"{path.stem}/{number}.png,{texts}\n")
    header = "image,caption\n" if path.stem == "captions" else "image,question,answer\n"
    path.write_text(header + "".join(rows))


def _speech(path: Path, rng: random.Random) -> None:
    sounds.write_speech(path.parent, 24)


def _libri(path: Path, rng: random.Random) -> None:
    """A folder in the layout of LibriSpeech: speaker, chapter, transcripts."""
    chapter = path / "84" / "1"
    chapter.mkdir(parents=True)
    lines = []
    for number in range(24):
        word = "".join(rng.choices("abcd", k=3))
        (chapter / f"84-1-{number:04}.flac").write_bytes(sounds.encode(sounds.tone(word, number), format="FLAC"))
        lines.append(f"84-1-{number:04} {word.upper()}\n")
    (chapter / "84-1.trans.txt").write_text("".join(lines))


def _digits(path: Path, rng: random.Random) -> None:
    folder = sounds.write_classes(path.parent / "unpacked", 6)
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.glob("*.wav")):
            archive.write(file, file.name)


def _recording(path: Path, rng: random.Random) -> None:
    path.write_bytes(sounds.encode(sounds.tone("abc", 7)))


FILES: dict[str, Callable[[Path, random.Random], None]] = {
    "BBBP.csv": _molecules,
    "LibriSpeech/dev-clean": _libri,
    "MUTAG.txt": _tu_graphs,
    "book.txt": _book,
    "books": _books,
    "broken.jsonl": _broken,
    "captions.csv": _image_table,
    "chats.jsonl": _chats,
    "cora": _citations,
    "dev.conll": _tags,
    "digits.zip": _digits,
    "episodes.csv": _episodes,
    "esol.csv": _molecules,
    "frames.csv": _frames,
    "hello.wav": _recording,
    "lines.txt": _book,
    "mails.csv": _mails,
    "new.jpg": _photo,
    "pairs.csv": _similar,
    "pairs.tsv": _pairs,
    "photo.jpg": _photo,
    "photos": _photos,
    "questions.csv": _image_table,
    "runs/dates/dates-train.tsv": _dates,
    "speech": _speech,
    "squad.json": _questions,
    "tags.conll": _tags,
    "test.tsv": _pairs,
    "train.conll": _tags,
    "walks.jsonl": _walks,
}
