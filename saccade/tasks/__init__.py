"""Tasks: one file each; the folder is the registry, and a dotted name is an importable module."""

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from saccade.config import from_json
from saccade.core.task import Task
from saccade.data.formats.audio_rows import find_audio
from saccade.data.formats.chats import is_chat_log
from saccade.data.formats.documents import text_column
from saccade.data.formats.graph_search import guess_graph_task
from saccade.data.formats.image_folders import PictureNames, refuse_packed
from saccade.data.formats.image_search import find_images
from saccade.data.formats.instructions import is_instructions
from saccade.data.formats.labelled_files import starts_with_labels
from saccade.data.formats.pair_files import COLUMN_NAMES, find_pairs
from saccade.data.formats.squad import is_squad
from saccade.data.formats.tagged import is_tagged, looks_tagged
from saccade.data.formats.trajectories import is_trajectories
from saccade.data.settings import HEADERS, AudioSettings, GraphSettings, ImageSettings
from saccade.data.tables.columns import label_kind
from saccade.data.tables.files import find
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.rows import UnclearHeader, rows
from saccade.data.tables.sniffing import DataFile, sniff
from saccade.errors import DataError, UsageError, suggest

TASK_OF_ROLES = {
    ("label",): "image_classification",
    ("caption",): "captioning",
    ("question", "answer"): "visual_question_answering",
    ("text",): "reading",
    ("action", "episode"): "image_policy",
}
TASK_OF_SOUND = {"text": "speech_recognition", "label": "audio_classification"}
TASK_OF_LABELS = {"classes": "text_classification", "numbers": "regression", "": "language_model"}
IMAGE_SETTINGS = (
    *("image_column", "label_column", "caption_column", "question_column", "answer_column", "text_column"),
    *("action_column", "episode_column"),
    *("encoding", "header"),
)
AUDIO_SETTINGS = ("audio_column", "text_column", "label_column", "speaker_column", "encoding", "header")
GRAPH_SETTINGS = ("label_column", "smiles_column", "encoding")
LANGUAGE = re.compile(r"[a-z]{2,3}([-_][a-z]+)?")  # a column called en or zh-hans
SNIFFED = 10  # files of a folder whose contents are looked at
SAMPLE = 200  # rows that decide whether a table has parallel texts


def task_names() -> list[str]:
    """Return the built-in tasks: the files of this folder."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def load_task(name: str) -> type[Task]:
    """Return the built-in task of that name, or the class `Task` of an importable module (`my_package.my_task`)."""
    if name.startswith(".") or ("." not in name and name not in task_names()):
        raise UsageError(f"no task '{name}'{suggest(name, task_names())}")
    path = name if "." in name else f"saccade.tasks.{name}"
    try:
        module = importlib.import_module(path)
        task = module.Task
    except ModuleNotFoundError as error:
        raise UsageError(f"no task '{name}': {error}") from error
    except (ImportError, SyntaxError, ValueError) as error:
        raise UsageError(f"the module '{path}' cannot be imported: {error}") from error
    except AttributeError as error:
        raise UsageError(f"the module '{path}' must have a class Task, but has none") from error
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise UsageError(f"Task of '{path}' must be a subclass of saccade.core.task.Task, but is {task!r}")
    return task


def guess_task(data: Path, overrides: Sequence[str] = ()) -> str:
    """Return the name of a task that suits the data, by file names, columns, contents and overrides."""
    pairs = (override.partition("=") for override in overrides if override.startswith("data."))
    settings = {name.removeprefix("data."): value for name, _, value in pairs}
    encoding = settings.get("encoding") or None
    if settings.get("target"):
        return "translation"
    columns = any(settings.get(f"{name}_column") for name in ("text", "label", "image"))
    if not columns and is_trajectories(data, encoding):
        return "behaviour_cloning"
    for guess in (_guess_audio_task, _guess_graph_task, _guess_image_task):
        if task := guess(data, settings):
            return task
    if is_tagged(data):
        return "tagging"
    paths = find(data, encoding)
    if is_squad(paths[0], encoding):
        return "question_answering"
    if is_instructions(paths[0], encoding):
        return "instruction_following"
    header = HEADERS.get(settings.get("header", "auto"))
    file = sniff(paths[0], encoding=encoding, header=header)
    if any(looks_tagged(sniff(path, encoding=encoding)) for path in paths[:SNIFFED]):
        return "tagging"
    if file.format == "text":
        return "text_classification" if starts_with_labels(file) else "language_model"
    return _guess_table_task(data, file, settings)


def _guess_audio_task(data: Path, settings: Mapping[str, str]) -> str:
    """Return the task that suits recordings; empty for data without any. Where it may be both, the user is asked."""
    given = {name: value for name, value in settings.items() if name in AUDIO_SETTINGS}
    layout = find_audio(data, from_json(AudioSettings, given, "data."))
    if layout is None:
        return ""
    tasks = [TASK_OF_SOUND[role] for role in layout.roles]
    if len(tasks) == 1:
        return tasks[0]
    if tasks:
        choices = " or ".join(f"--task {task}" for task in tasks)
        what, expected = "recordings with texts and labels", "one of them"
        raise BadRows([Problem(data, None, None, what, expected, f"choose with {choices}")])
    what = "recordings without labels or texts"
    expected = "a folder for each class, a table with a path and a text or label, or transcripts"
    step = "write a file metadata.csv with the columns file_name and text, or move the recordings into class folders"
    raise BadRows([Problem(data, None, None, what, expected, step)])


def _guess_graph_task(data: Path, settings: Mapping[str, str]) -> str:
    """Return the task that suits graphs or molecules; empty for other data."""
    given = {name: value for name, value in settings.items() if name in GRAPH_SETTINGS}
    return guess_graph_task(data, from_json(GraphSettings, given, "data."))


def _guess_image_task(data: Path, settings: Mapping[str, str]) -> str:
    """Return the task that suits image data; empty for data without pictures.

    Where the texts may be several things, or there are none, the user is asked.
    """
    given = {name: value for name, value in settings.items() if name in IMAGE_SETTINGS}
    layout = find_images(data, from_json(ImageSettings, given, "data."))
    if layout is None:
        return ""
    tasks = [TASK_OF_ROLES[roles] for roles in layout.roles]
    if len(tasks) == 1:
        return tasks[0]
    if tasks:
        choices = " or ".join(f"--task {task}" for task in tasks)
        what, expected = "the texts of the pictures may be several things", "one that their names or columns tell"
        raise BadRows([Problem(data, None, None, what, expected, f"choose with {choices}")])
    if isinstance(layout, PictureNames):
        refuse_packed(layout.tree)
    what = "pictures without labels or texts"
    expected = "a folder for each class, or a table with a path and a label, a caption, or a question and answer"
    step = (
        "where the file names are the texts that the pictures show, add --task reading; to generate such pictures, "
        "--task image_generation"
    )
    raise BadRows([Problem(data, None, None, what, expected, step)])


def _guess_table_task(data: Path, file: DataFile, settings: Mapping[str, str]) -> str:
    """Return the task that suits a table; one that could be several things is refused with the question which."""
    text, second, label = (settings.get(f"{name}_column", "") for name in ("text", "second", "label"))
    if (text and not label and not second) or (not label and is_chat_log(file)):
        return "language_model"
    labels = label_kind(file, text=text, second=second, label=label)
    if label:
        return TASK_OF_LABELS[labels or "classes"]
    if not (labels == "numbers" and not file.columns) and _is_parallel(data, file, settings):
        return "translation"
    if not labels:
        _check_text_column(file)
    return TASK_OF_LABELS[labels]


def _check_text_column(file: DataFile) -> None:
    """Ask which columns are meant, where none is sure to be a label and none to be the text of a language model."""
    try:
        text_column(file)
    except UnclearHeader:
        raise
    except BadRows as error:
        (problem,) = error.problems
        step = (
            "name them: --text-column NAME and --label-column NAME to classify or to predict numbers, --source NAME "
            "and --target NAME to translate, or --text-column NAME alone for a language model"
        )
        raise BadRows([replace(problem, next_step=step)]) from error


def _is_parallel(data: Path, file: DataFile, settings: Mapping[str, str]) -> bool:
    """Whether a table has two text columns with common names, or consists of two text columns."""
    source, target, encoding = (settings.get(name, "") for name in ("source", "target", "encoding"))
    header = HEADERS.get(settings.get("header", "auto"))
    try:
        columns = find_pairs(data, source=source, target=target, encoding=encoding or None, header=header).columns
    except UnclearHeader:
        raise
    except DataError:
        return False
    names = tuple(name.lower() for name in columns)
    languages = len(file.columns) == 2 and all(LANGUAGE.fullmatch(name) for name in names)
    if file.columns and not source and names not in COLUMN_NAMES and not languages:
        return False
    sample = [row.values for row in islice(rows(file, columns, problems=Problems()), SAMPLE)]
    texts = all(len(set(side)) > len(side) / 2 for side in zip(*sample, strict=True))  # a column of labels repeats
    return bool(sample) and texts
