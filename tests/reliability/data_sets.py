"""Small valid data sets of every format that is read: the ones that are fuzzed."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from tiny import ROOT  # first: it makes the packages importable

from saccade.demo import maze
from saccade.demo.cartpole import write_cartpole
from tests.data.audio.sounds import encode as encode_sound
from tests.data.audio.sounds import tone
from tests.data.audio.test_formats import LAYOUTS
from tests.data.graphs.test_planetoid import write_planetoid
from tests.data.images.test_arrays import batch, cifar_binary, cifar_python, write_mnist
from tests.tasks import graph_data, scenes

__all__ = ["ROOT", "DataSet", "data_sets"]
LINES = [
    f"the {colour} {animal} sat on the mat and saw a dog."
    for colour in ("red", "blue")
    for animal in ["cat", "ox", "hen"]
]


@dataclass(frozen=True)
class DataSet:
    """Files by their paths within a folder, what of them is trained on, and the task."""

    name: str
    task: str
    files: Mapping[str, bytes]
    given: str = ""
    """path within the folder; empty: the folder"""
    settings: tuple[str, ...] = ()


def packed(files: Mapping[str, bytes], kind: str) -> bytes:
    """Return an archive of files."""
    stream = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(fileobj=stream, mode=f"w:{kind}") as archive:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def text_sets() -> list[DataSet]:
    """Texts, tables, JSON lines, aligned files, tagged words, questions and chats."""
    text = "".join(f"{line}\n" for line in LINES * 4).encode()
    draw = random.Random(3)
    labels = [draw.choice(("pet", "none")) for _ in LINES * 4]
    rows = list(zip(LINES * 4, labels, strict=True))
    articles = [
        {"title": f"{n}", "paragraphs": [{"context": line, "qas": [_question(n, line)]}]}
        for n, line in enumerate(LINES)
    ]
    words = "\n\n".join(
        "\n".join(f"{word} {'B-PET' if word == 'dog.' else 'O'}" for word in line.split()) for line in LINES
    )

    def table(mark: str, *columns: str, values: list[tuple[object, ...]]) -> bytes:
        return "".join(mark.join(map(str, row)) + "\n" for row in (columns, *values)).encode()

    doubled = LINES * 4
    numbers = [(first, second, n / 4) for n, (first, second) in enumerate(zip(doubled, doubled[3:], strict=False))]
    pairs = [(line, line.upper()) for line in LINES * 3]
    objects = [{"text": line, "label": label} for line, label in rows]
    turns = [[{"role": "user", "content": line}, {"role": "assistant", "content": line.upper()}] for line in doubled]
    similar = table("\t", "sentence1", "sentence2", "score", values=numbers)
    summaries = table(",", "document", "summary", values=pairs)
    labelled = table(",", "text", "label", values=rows)
    return [
        DataSet("text", "language_model", {"text.txt": text}, "text.txt"),
        DataSet("gzip text", "language_model", {"text.txt.gz": gzip.compress(text, mtime=0)}, "text.txt.gz"),
        DataSet("utf-16 text", "masked_language_model", {"text.txt": text.decode().encode("utf-16")}, "text.txt"),
        DataSet("csv labels", "text_classification", {"rows.csv": labelled}, "rows.csv"),
        DataSet("tsv numbers", "regression", {"rows.tsv": similar}, "rows.tsv"),
        DataSet("tsv similar", "sentence_vectors", {"rows.tsv": similar}),
        DataSet("jsonl labels", "text_classification", {"rows.jsonl": _json_lines(objects)}, "rows.jsonl"),
        DataSet("tsv pairs", "translation", {"pairs.tsv": table("\t", "source", "target", values=pairs)}, "pairs.tsv"),
        DataSet("aligned files", "translation", {"a.en": text, "a.de": text.upper()}, "a.en", ("data.target=de",)),
        DataSet("csv summaries", "summarisation", {"rows.csv": summaries}, "rows.csv"),
        DataSet("conll", "tagging", {"words.conll": words.encode()}, "words.conll"),
        DataSet("squad", "question_answering", {"squad.json": json.dumps({"data": articles}).encode()}, "squad.json"),
        DataSet(
            "chats",
            "language_model",
            {"chats.jsonl": _json_lines([{"messages": each} for each in turns])},
            "chats.jsonl",
        ),
    ]


def _question(number: int, line: str) -> dict[str, object]:
    answers = [{"text": line[4:7], "answer_start": 4}]
    return {"id": f"{number}", "question": "who sat?", "is_impossible": False, "answers": answers}


def _json_lines(rows: Sequence[Mapping[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def pictures(format: str = "PNG", count: int = 6) -> dict[str, bytes]:
    """Return class folders of pictures in one format."""
    from PIL import Image

    files = {}
    for number in range(count):
        stream, colour = io.BytesIO(), ("red", "blue")[number % 2]
        Image.fromarray(scenes.draw(colour, "bar", "left", number)).save(stream, format)
        files[f"{colour}/{number}.{ {'JPEG': 'jpg', 'TIFF': 'tif'}.get(format, format.lower()) }"] = stream.getvalue()
    return files


def image_sets(folder: Path) -> list[DataSet]:
    """Pictures of every format, with labels, captions, questions and texts; arrays and archives."""
    rng, task = np.random.default_rng(0), "image_classification"
    arrays = io.BytesIO()
    np.savez(arrays, images=rng.integers(0, 256, (8, 8, 8, 3), dtype=np.uint8), labels=np.arange(8) % 2)
    write_mnist(_new(folder / "mnist"), packed=True)
    flat = {name.replace("/", "-"): content for name, content in pictures().items()}
    coco = {
        "images": [{"id": n, "file_name": name} for n, name in enumerate(flat)],
        "annotations": [{"image_id": n, "id": n, "caption": f"a {name[:3]} bar"} for n, name in enumerate(flat)],
    }
    names = list(flat)
    captions = "file_name,caption\n" + "".join(f"{name},a {name[:3]} bar\n" for name in names)
    questions = "image,question,answer\n" + "".join(f"{name},what colour?,{name[:3]}\n" for name in names)
    objects = "".join(json.dumps({"image": name, "label": name[:3]}) + "\n" for name in names)
    listed = "".join(f"{name}\tword {n}\n" for n, name in enumerate(names))
    maze.write_frames(folder / "frames", train_rows=2, valid_rows=1)
    frames = {name: content for name, content in _files(folder / "frames").items() if not name.startswith("examples")}
    return [
        *(
            DataSet(f"{kind} folders", task, pictures(kind))
            for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
        ),
        DataSet("captions csv", "captioning", {**flat, "metadata.csv": captions.encode()}),
        DataSet("captions image_text", "image_text", {**flat, "metadata.csv": captions.encode()}),
        DataSet(
            "coco", "captioning", {**flat, "captions_train.json": json.dumps(coco).encode()}, "captions_train.json"
        ),
        DataSet("questions csv", "visual_question_answering", {**flat, "rows.csv": questions.encode()}, "rows.csv"),
        DataSet("labels jsonl", task, {**flat, "rows.jsonl": objects.encode()}, "rows.jsonl"),
        DataSet("list of texts", "reading", {**flat, "gt.txt": listed.encode()}, "gt.txt"),
        DataSet("generation", "image_generation", pictures(count=40)),
        DataSet("image npz", task, {"pictures.npz": arrays.getvalue()}, "pictures.npz"),
        DataSet("mnist", task, _files(folder / "mnist")),
        DataSet("cifar pickles", task, cifar_python(batch(4), batch(2))),
        DataSet("cifar binary", task, cifar_binary(batch(4), batch(2))),
        DataSet("zip of pictures", task, {"pictures.zip": packed(pictures(), "zip")}, "pictures.zip"),
        DataSet("tar.gz of pictures", task, {"pictures.tar.gz": packed(pictures(), "gz")}, "pictures.tar.gz"),
        DataSet("frames", "image_policy", frames),
    ]


def audio_sets() -> list[DataSet]:
    """Recordings of every format, and every layout of transcripts."""
    speech, classes = "speech_recognition", "audio_classification"

    def recordings(format: str, subtype: str | None = None) -> dict[str, bytes]:
        end = {"WAV": "wav", "FLAC": "flac", "OGG": "ogg", "AIFF": "aiff", "AU": "au", "MP3": "mp3"}[format]
        rate = 8000 if format == "MP3" else 4000
        return {
            f"{label}/{n}.{end}": encode_sound(tone(label, n, rate), rate, format, subtype)
            for label in "ab" for n in range(3)
        }  # fmt: skip

    words = ["ab", "c", "dd", "a"]
    parts = [(tone(word) * 32767).astype(np.int16) for word in words]
    arrays = io.BytesIO()
    np.savez(
        arrays,
        audio=np.concatenate(parts),
        offsets=np.cumsum([0, *map(len, parts)]),
        text=np.array(words),
        rate=np.array(4000),
    )
    layouts = {name: {path: _bytes(content) for path, content in files.items()} for name, files in LAYOUTS.items()}
    return [
        *(DataSet(f"{format} folders", classes, recordings(format)) for format in ("WAV", "FLAC", "OGG", "AIFF")),
        DataSet("float WAV", classes, recordings("WAV", "FLOAT")),
        DataSet("24-bit WAV", classes, recordings("WAV", "PCM_24")),
        *(DataSet(f"speech {name}", speech, files) for name, files in layouts.items()),
        DataSet("audio npz", speech, {"speech.npz": arrays.getvalue()}, "speech.npz"),
        DataSet("zip of recordings", classes, {"sounds.zip": packed(recordings("WAV"), "zip")}, "sounds.zip"),
    ]


def graph_sets(folder: Path) -> list[DataSet]:
    """Graphs and molecules."""
    import networkx

    write_planetoid(folder / "planetoid")
    graph_data.write_communities(folder, 24)
    graph_data.write_graphs(folder)
    graph_data.write_numbers(_new(folder / "numbers"))
    few = b"\n".join((folder / "graphs.jsonl").read_bytes().splitlines()[:12]) + b"\n"
    values = b"\n".join((folder / "numbers" / "graphs.jsonl").read_bytes().splitlines()[:12]) + b"\n"
    graph = networkx.karate_club_graph()
    for node in graph:
        graph.nodes[node]["label"] = graph.nodes[node].pop("club")
    networkx.write_graphml(graph, folder / "g.graphml")
    molecules = (
        "CCO",
        "c1ccccc1",
        "CC(=O)O",
        "C[N+](C)(C)C",
        "C/C=C/C",
        "[Na+].[Cl-]",
        "N#N",
        "O=C=O",
        "CCN",
        "C1CC1",
        "BrC",
        "CS",
    )
    smiles = "smiles,active\n" + "".join(f"{one},{n % 2}\n" for n, one in enumerate(molecules))
    content = "".join(f"p{n} {n % 2} {(n + 1) % 2} 1 {('AI', 'DB')[n % 2]}\n" for n in range(12))
    cites = "".join(f"p{n} p{(n + 1) % 12}\n" for n in range(12))
    folders = {
        "S_A.txt": "".join(f"{2 * n + 1}, {2 * n + 2}\n{2 * n + 2}, {2 * n + 1}\n" for n in range(8)),
        "S_graph_indicator.txt": "".join(f"{n + 1}\n{n + 1}\n" for n in range(8)),
        "S_graph_labels.txt": "".join(f"{n % 2}\n" for n in range(8)),
        "S_node_labels.txt": "5\n6\n" * 8,
        "S_node_attributes.txt": "0.5, 1\n0.25, 2\n" * 8,
    }
    tu = "8\n" + "".join(f"2 {n % 2}\n0 1 1\n{n % 3} 1 0\n" for n in range(8))
    node, whole = "node_classification", "graph_classification"
    link = networkx.node_link_data(graph, edges="edges")
    return [
        DataSet("nodes and edges", node, _files(folder / "communities")),
        DataSet("node-link json", node, {"g.json": json.dumps(link).encode()}, "g.json"),
        DataSet("graphs jsonl", whole, {"graphs.jsonl": few}, "graphs.jsonl"),
        DataSet("numbers jsonl", "graph_regression", {"graphs.jsonl": values}, "graphs.jsonl"),
        DataSet("graphml", node, {"g.graphml": (folder / "g.graphml").read_bytes()}, "g.graphml"),
        DataSet("smiles", whole, {"mols.csv": smiles.encode()}, "mols.csv"),
        DataSet("linqs", node, {"c.content": content.encode(), "c.cites": cites.encode()}),
        DataSet("tu text", whole, {"set.txt": tu.encode()}, "set.txt"),
        DataSet("tu folder", whole, {name: text.encode() for name, text in folders.items()}),
        DataSet("planetoid", node, _files(folder / "planetoid")),
    ]


def trajectory_sets(folder: Path) -> list[DataSet]:
    """Steps and episodes of policies in every layout, and instructions."""
    import h5py

    policy, rng = "behaviour_cloning", np.random.default_rng(1)
    observations, actions, rewards = rng.standard_normal((36, 3)).round(3), rng.integers(0, 2, 36), np.arange(36) / 4
    ends = np.arange(36) % 12 == 11
    keys = ("observation", "action", "reward", "done")
    rows = list(zip(observations.tolist(), actions.tolist(), rewards.tolist(), ends.tolist(), strict=True))
    parts = [slice(first, first + 12) for first in (0, 12, 24)]
    episodes = [{"observations": observations[part].tolist(), "actions": actions[part].tolist()} for part in parts]
    arrays = io.BytesIO()
    np.savez(arrays, observations=observations, actions=actions, rewards=rewards, terminals=ends)
    with h5py.File(_new(folder / "data") / "main_data.hdf5", "w") as file:
        for number, part in enumerate(parts):
            group = file.create_group(f"episode_{number}")
            group["observations"] = np.concatenate([observations[part], np.zeros((1, 3))])
            group["actions"], group["rewards"] = actions[part], rewards[part]
    aligned = {"actions": actions, "rewards": rewards, "dones": ends.astype(int)}
    files = {f"{name}.csv": "".join(f"{value}\n" for value in values).encode() for name, values in aligned.items()}
    files["observations.csv"] = "".join(" ".join(map(str, row)) + "\n" for row in observations).encode()
    steps = _json_lines([dict(zip(keys, row, strict=True)) for row in rows])
    walks = maze.write_instructions(folder / "walks", train_rows=12, valid_rows=3).train
    cartpole = write_cartpole(folder / "cartpole", episodes=2).train
    return [
        DataSet("steps csv", policy, {cartpole.name: cartpole.read_bytes()}, cartpole.name),
        DataSet("aligned steps", policy, files),
        DataSet("steps jsonl", policy, {"steps.jsonl": steps}, "steps.jsonl"),
        DataSet("episodes jsonl", policy, {"episodes.jsonl": _json_lines(episodes)}, "episodes.jsonl"),
        DataSet("steps npz", policy, {"steps.npz": arrays.getvalue()}, "steps.npz"),
        DataSet("minari", policy, {"data/main_data.hdf5": (folder / "data" / "main_data.hdf5").read_bytes()}),
        DataSet("instructions", "instruction_following", {"walks.jsonl": walks.read_bytes()}, "walks.jsonl"),
    ]


def data_sets(folder: Path) -> list[DataSet]:
    """Return all data sets; some are written to a folder first."""
    makers: list[Callable[[], list[DataSet]]] = [
        text_sets,
        partial(image_sets, _new(folder / "images")),
        audio_sets,
        partial(graph_sets, _new(folder / "graphs")),
        partial(trajectory_sets, _new(folder / "trajectories")),
    ]
    return [data_set for make in makers for data_set in make()]


def _new(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _bytes(content: bytes | str) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
