"""JSON files about pictures: captions of COCO and of Karpathy's splits, questions of VQA and of easy-vqa."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from saccade.core.callback import Progress
from saccade.data.formats.image_layouts import ImageLayout, ImageRows, RowCollector, within_folder
from saccade.data.images.finder import PictureFinder
from saccade.data.images.trees import Folder, Tree
from saccade.data.parts import PARTS, part_of, part_of_file
from saccade.data.settings import ImageSettings
from saccade.data.tables.json_files import is_json_name, json_head, load_json, preview
from saccade.data.tables.problems import Problem

MAX_CHARACTERS = 1 << 29  # of a decompressed file; more than the largest of VQA
MAX_DEPTH = 3  # folders in which annotation files are looked for
OTHER_ANNOTATIONS = ("instances", "person_keypoints", "stuff", "panoptic", "image_info")  # of COCO
ANNOTATION_FOLDERS = ("annotations", "annotation", "captions", "questions", "text")
SHAPES = {
    "coco": '{"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"image_id": 1, "caption": "a dog"}]}',
    "karpathy": '{"images": [{"filename": "1.jpg", "split": "train", "sentences": [{"raw": "a dog"}]}]}',
    "questions": '{"questions": [{"question_id": 1, "image_id": 1, "question": "what is it?"}]}',
    "answers": '{"annotations": [{"question_id": 1, "answers": [{"answer": "a dog"}]}]}',
    "triples": '[["what shape is it?", "circle", 1]]',
}
DESCRIPTIONS = {
    "coco": "captions as in COCO",
    "karpathy": "captions with Karpathy's splits",
    "questions": "questions as in VQA",
    "triples": "questions as in easy-vqa",
}

NAMES_BY_NUMBER = ("COCO_{subset}_{padded}", "{padded}", "{number}", "abstract_v002_{subset}_{padded}")

Kind = Literal["coco", "karpathy", "questions", "answers", "triples"]
Item = Mapping[str, Any]


@dataclass(frozen=True)
class _Document:
    """One JSON file: what it is, and the part of the data it has."""

    path: Path
    kind: Kind
    content: Any
    part: int | None


class JsonPictures(ImageLayout):
    """Annotation files in JSON, and pictures below a folder."""

    def __init__(self, path: Path, files: Sequence[Path], folder: Path, encoding: str) -> None:
        self.path, self.folder = path, folder
        documents = [_open(file, path, encoding) for file in files]
        self._documents = [document for document in documents if document is not None]

    def __bool__(self) -> bool:
        return bool(self._documents)

    @property
    def roles(self) -> tuple[tuple[str, ...], ...]:
        captions = any(document.kind in ("coco", "karpathy") for document in self._documents)
        questions = any(document.kind in ("questions", "triples") for document in self._documents)
        return (("caption",),) * captions + (("question", "answer"),) * questions

    def read(self, roles: Sequence[str], settings: ImageSettings, progress: Progress) -> ImageRows:
        if tuple(roles) not in self.roles:
            has = " and ".join("captions" if group == ("caption",) else "questions" for group in self.roles)
            raise self.refuse_roles(roles, f"a JSON file of {has or 'answers without their questions'}")
        kinds = ("coco", "karpathy") if tuple(roles) == ("caption",) else ("questions", "triples")
        documents = [document for document in self._documents if document.kind in kinds]
        collector = RowCollector(PictureFinder(self.folder), roles, files=[document.path for document in documents])
        for number, document in enumerate(documents):
            reader = _Reader(document, collector, number, self.folder)
            reader.add_rows(self._answers)
            progress((number + 1) / len(documents))
        return collector.rows(self.path, [self._describe(document) for document in documents])

    def _describe(self, document: _Document) -> str:
        path, items = document.path, document.content
        items = (
            items if isinstance(items, list) else items.get("annotations") or items.get("questions") or items["images"]
        )
        name = path.relative_to(self.path) if path != self.path and path.is_relative_to(self.path) else path.name
        return f"{name}: {DESCRIPTIONS[document.kind]}, {len(items):,} entries"

    @cached_property
    def _answers(self) -> dict[object, str]:
        """The answers to each question by its id, on a line each."""
        answers: dict[object, str] = {}
        for document in self._documents:
            items = document.content["annotations"] if document.kind == "answers" else ()
            for item in (item for item in items if isinstance(item, dict)):
                listed = item.get("answers")
                entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
                texts = [entry.get("answer") for entry in entries] or [item.get("multiple_choice_answer")]
                answers[_key(item.get("question_id"))] = "\n".join(text for text in texts if isinstance(text, str))
        return answers


class _Reader:
    """Adds the rows of one document to a collector."""

    def __init__(self, document: _Document, collector: RowCollector, file: int, folder: Path) -> None:
        self._document, self._collector, self._file, self._folder = document, collector, file, folder

    def add_rows(self, answers: Mapping[object, str]) -> None:
        """Add all rows; `answers` are those to the questions of VQA."""
        if self._document.kind == "questions":
            self._add_questions(answers)
        elif self._document.kind == "coco":
            self._add_coco()
        elif self._document.kind == "karpathy":
            self._add_karpathy()
        else:
            self._add_triples()

    def _add_coco(self) -> None:
        """Add the captions of a COCO file."""
        names = {_key(item.get("id")): item.get("file_name") for item in self._items("images")}
        for number, item in enumerate(self._items("annotations"), 1):
            name = names.get(_key(item.get("image_id")))
            if not isinstance(name, str):
                what = f"annotation {number}: no picture with the id {preview(item.get('image_id'))}"
                self._problem(what, "an id under 'images'", "add the picture or delete the annotation")
            elif self._is_text(item, "caption", f"annotation {number}"):
                self._collector.add(self._file, 0, name, [item["caption"]], self._document.part)

    def _add_karpathy(self) -> None:
        """Add the captions of a file of Karpathy, which names the part of each picture."""
        for number, item in enumerate(self._items("images"), 1):
            context = f"picture {number}"
            if not self._is_text(item, "filename", context):
                continue
            part = part_of(str(item.get("split", "")))
            if part is None and "split" in item:
                what = f"{context}: 'split' is {preview(item['split'])}"
                self._problem(what, f"a part of the data: {', '.join(PARTS)}", "correct it, or delete the entry")
                continue
            name = str(PurePosixPath(str(item.get("filepath", "")), item["filename"]))
            sentences = item.get("sentences")
            for sentence in sentences if isinstance(sentences, list) else ():
                if not isinstance(sentence, dict):
                    self._problem(f"{context}: a sentence is {preview(sentence)}", "an object", self._step())
                elif self._is_text(sentence, "raw", context):
                    self._collector.add(self._file, 0, name, [sentence["raw"]], part)

    def _add_questions(self, answers: Mapping[object, str]) -> None:
        """Add the questions of a VQA file with their answers."""
        subset = str(self._document.content.get("data_subtype", ""))
        form = self._form_of_names(subset)
        for number, item in enumerate(self._items("questions"), 1):
            context = f"question {number}"
            if not self._is_text(item, "question", context):
                continue
            answer = answers.get(_key(item.get("question_id")))
            if answer is None:
                what = f"{context}: no answer to the question id {preview(item.get('question_id'))}"
                self._problem(what, "a file of answers beside it", "put the annotations JSON into the same folder")
                continue
            name = form.format(subset=subset, number=item.get("image_id"), padded=str(item.get("image_id")).zfill(12))
            self._collector.add(self._file, 0, name, [item["question"], answer], self._document.part)

    def _add_triples(self) -> None:
        """Add the questions of an easy-vqa file: [question, answer, number of the picture]."""
        folder = self._document.path.parent
        images = folder / "images" if (folder / "images").is_dir() else folder
        within = within_folder(images / "picture", self._folder)
        for number, item in enumerate(self._document.content, 1):
            if not isinstance(item, list) or len(item) != 3 or not all(isinstance(text, str) for text in item[:2]):
                self._problem(f"item {number} is {preview(item)}", "[question, answer, picture]", self._step())
                continue
            question, answer, image = item
            name = f"{within}/{image}" if within else str(image)
            self._collector.add(self._file, 0, name, [question, answer], self._document.part)

    def _form_of_names(self, subset: str) -> str:
        """Return how most of the pictures are named by their numbers: as COCO writes them, or as the number itself."""
        questions = self._document.content["questions"]
        numbers = {str(item.get("image_id")) for item in questions if isinstance(item, dict)}

        def count(form: str) -> int:
            names = [form.format(subset=subset, number=number, padded=number.zfill(12)) for number in numbers]
            return sum(match.place is not None for match in self._collector.finder.match(names).values())

        return max(NAMES_BY_NUMBER, key=count)

    def _items(self, key: str) -> Iterator[Item]:
        for number, item in enumerate(self._document.content[key], 1):
            if isinstance(item, dict):
                yield item
            else:
                self._problem(f"item {number} of '{key}' is {preview(item)}", "an object", self._step())

    def _is_text(self, item: Item, key: str, context: str) -> bool:
        """Whether there is a text under a key; if not, that is a problem."""
        text = item.get(key)
        if isinstance(text, str) and text.strip():
            return True
        what = f"{context}: '{key}' is {preview(text)}" if key in item else f"{context}: no '{key}'"
        self._problem(what, "some text", "fill it in or delete the entry")
        return False

    def _problem(self, what: str, expected: str, step: str) -> None:
        self._collector.problems.add(Problem(self._document.path, None, None, what, expected, step))

    def _step(self) -> str:
        return f"write it as {SHAPES[self._document.kind]}"


def find_json(path: Path, tree: Tree | None, settings: ImageSettings) -> JsonPictures | None:
    """Return the JSON files of a path that are about pictures; None if there are none. `tree`: the path as a folder."""
    if isinstance(tree, Folder):
        names = [name for name in tree.names if is_json_name(name) and name.count("/") < MAX_DEPTH]
        files = [path / name for name in names if not PurePosixPath(name).name.startswith(OTHER_ANNOTATIONS)]
        folder = path
    elif is_json_name(path.name):
        files, folder = [path], path.parent
        if folder.name.lower() in ANNOTATION_FOLDERS:  # the pictures are beside the folder of the annotations
            folder = folder.parent
        files += [file for file in sorted(path.parent.iterdir()) if file != path and _is_answer_file(file, path)]
    else:
        return None
    layout = JsonPictures(
        path, [file for file in files if _may_fit(file, settings)], folder, settings.encoding or "utf-8"
    )
    return layout if layout else None


def _may_fit(path: Path, settings: ImageSettings) -> bool:
    head = json_head(path, settings.encoding or None)
    if head.startswith("["):
        return head[1:].lstrip().startswith("[")
    return head.startswith("{") and any(f'"{key}"' in head for key in ("images", "questions", "annotations"))


def _is_answer_file(file: Path, questions: Path) -> bool:
    """Whether a file may have the answers to the questions of another: for the same part of the data."""
    names = "question" in questions.name.lower() and "annotations" in file.name.lower() and is_json_name(file.name)
    return names and part_of_file(file, file) == part_of_file(questions, questions)


def _open(path: Path, root: Path, encoding: str) -> _Document | None:
    """Return a document if it is about pictures."""
    shape = SHAPES["coco"]
    content = load_json(path, encoding, max_characters=MAX_CHARACTERS, expected="captions or questions", shape=shape)
    kind = _kind(content)
    if kind is None:
        return None
    return _Document(path, kind, content, part_of_file(path, root))


def _key(value: object) -> object:
    """Return an id that may be any JSON value as something that can be looked up."""
    return json.dumps(value) if isinstance(value, dict | list) else value


def _kind(content: Any) -> Kind | None:
    """Return what a document is by its first items; None if it is something else."""
    if isinstance(content, list):
        first = content[0] if content else None
        return "triples" if isinstance(first, list) and len(first) == 3 and isinstance(first[0], str) else None
    if not isinstance(content, dict):
        return None

    def has(key: str, field: str) -> bool:
        items = content.get(key)
        return isinstance(items, list) and any(isinstance(item, dict) and field in item for item in items[:10])

    if has("images", "sentences"):
        return "karpathy"
    if has("annotations", "caption") and isinstance(content.get("images"), list):
        return "coco"
    if has("annotations", "question_id"):
        return "answers"
    return "questions" if has("questions", "question") else None
