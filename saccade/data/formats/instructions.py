"""Instructions for a walker: reads JSON lines of maps, instructions and actions, and checks each walk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.data.fingerprints import hash_lines
from saccade.data.origins import RowOrigins
from saccade.data.settings import ValidationSplit
from saccade.data.splitting import SplitSettings, hold_out
from saccade.data.tables.files import find
from saccade.data.tables.json_files import check_unicode, json_head, preview
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.rows import Lines
from saccade.data.tables.sniffing import sniff
from saccade.data.texts import Texts
from saccade.worlds.grid import ACTIONS, FORWARD, STOP, TERRAIN, GridWorld, parse_grid, parse_position, walk
from saccade.worlds.rules import RuleError

SHAPE = (
    '{"map": [...], "legend": {...}, "start": [1, 1, "north"], "instruction": "...", "actions": [...], "goal": [3, 2]}'
)
KEYS = ("map", "legend", "start", "instruction", "actions", "goal", "held_out")
MAX_ACTIONS = 1000


@dataclass(frozen=True)
class InstructionSettings(ValidationSplit):
    """Which instructions are read."""

    encoding: str = ""
    """encoding of the files, if not UTF-8"""


@dataclass(frozen=True)
class Episode:
    """An instruction in a world, and the actions of an expert that follow it."""

    world: GridWorld
    instruction: str
    actions: tuple[int, ...]
    goal: tuple[int, int]
    held_out: tuple[str, ...] = ()
    """names of what is only in the validation data, if the file says so"""


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes with the file and line of each."""

    items: Sequence[Episode]
    origins: RowOrigins

    def __len__(self) -> int:
        return len(self.items)

    @property
    def instructions(self) -> Texts:
        return Texts.of(episode.instruction for episode in self.items)

    def landmarks(self) -> list[str]:
        """Return the words of all landmarks, sorted."""
        names = {name for item in self.items for name in item.world.legend.values()}
        return sorted({word for name in names for word in name.split()} - set(TERRAIN))

    def map_notes(self, valid: Episodes) -> list[str]:
        """Return a note if validation episodes have maps of these; never where one file was divided."""
        maps = {episode.world.rows for episode in self.items}
        shared = sum(episode.world.rows in maps for episode in valid.items)
        note = f"{shared:,} of {len(valid):,} validation episodes are on maps of the training data"
        return [note] if shared else []

    def fingerprint(self) -> str:
        """Return a hash of all episodes."""
        return hash_lines(repr(episode) for episode in self.items)

    def take(self, rows: NDArray[np.int64]) -> Episodes:
        """Return some of the episodes."""
        return Episodes([self.items[row] for row in rows.tolist()], self.origins.take(rows))


def read_episodes(data: Path, settings: InstructionSettings) -> tuple[Episodes, Episodes]:
    """Return the episodes for training and for validation; those of one file are divided by their maps."""
    episodes = read_episode_files(data, settings.encoding)
    if settings.valid:
        return episodes, read_episode_files(Path(settings.valid), settings.encoding)
    keys = ["\n".join(item.world.rows) for item in episodes.items]
    chosen = hold_out(keys, [""] * len(keys), SplitSettings(settings.valid_fraction), data, unit="map")
    held_out = np.array(chosen)
    return episodes.take(np.flatnonzero(~held_out)), episodes.take(np.flatnonzero(held_out))


def read_episode_files(data: Path, encoding: str = "") -> Episodes:
    """Return the episodes of a file, or of all files of a folder; bad lines are raised together."""
    paths = tuple(find(data, encoding or None))
    problems, items, numbers, lines = Problems(), [], [], []
    for number, path in enumerate(paths):
        for line, episode in _read_file(path, encoding, problems):
            items.append(episode)
            numbers.append(number)
            lines.append(line)
    problems.check()
    if not items:
        raise BadRows([Problem(data, None, None, "no episodes", "at least one", f"write one a line: {SHAPE}")])
    return Episodes(items, RowOrigins(paths, np.array(numbers, np.int32), np.array(lines, np.int64)))


def is_instructions(path: Path, encoding: str | None = None) -> bool:
    """Whether the first line of a file looks like an episode."""
    if not path.name.lower().removesuffix(".gz").endswith(".jsonl"):
        return False
    first = json_head(path, encoding).partition("\n")[0]
    return first.startswith("{") and all(f'"{key}"' in first for key in ("map", "instruction", "actions"))


def _read_file(path: Path, encoding: str, problems: Problems) -> Iterator[tuple[int, Episode]]:
    """Yield the line numbers and episodes of one file; bad lines are added to the problems."""
    file = sniff(path, encoding=encoding or None)
    if file.format != "jsonl":
        raise BadRows([Problem(path, 1, None, file.format, "JSON lines", f"write one episode a line: {SHAPE}")])
    lines = Lines(file)
    try:
        for text in lines:
            if not text.strip():
                continue
            try:
                yield lines.number, parse_episode(text.rstrip())
            except RuleError as error:
                problems.add(Problem(path, lines.number, None, error.what, error.expected, error.next_step))
    except BadRows as fatal:
        raise problems.fail(fatal) from fatal


def parse_episode(text: str) -> Episode:
    """Return the episode of one line of JSON; raises RuleError where it breaks a rule."""
    value = _parse_object(text)
    world = parse_grid(value)
    instruction, held_out = value["instruction"], value.get("held_out", [])
    if not isinstance(instruction, str) or not instruction.strip():
        raise RuleError(f"'instruction' is {preview(instruction)}", "a text")
    if not isinstance(held_out, list) or not all(isinstance(name, str) and name for name in held_out):
        raise RuleError(f"'held_out' is {preview(held_out)}", "a list of names")
    row, column = parse_position(value["goal"], world.rows, "goal")
    actions = _parse_actions(value["actions"])
    _check_walk(world, actions, (row, column))
    return Episode(world, instruction, actions, (row, column), tuple(held_out))


def _parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object of a line, with all its keys."""
    expected, step = "a JSON object", f"write one episode a line: {SHAPE}"
    try:
        value = json.loads(text)
        check_unicode(text, value)
    except UnicodeEncodeError as error:
        raise RuleError("half of a surrogate pair", "valid Unicode", "remove it") from error
    except json.JSONDecodeError as error:
        raise RuleError(f"invalid JSON ({error.msg}) at column {error.colno}", expected, step) from error
    except (RecursionError, ValueError) as error:
        raise RuleError("JSON nested too deeply, or with a number that is too long", expected, step) from error
    if not isinstance(value, dict):
        raise RuleError(preview(value), expected, step)
    unknown = next((key for key in value if key not in KEYS), None)
    if unknown is not None:
        raise RuleError(f"a key '{unknown[:40]}'", f"only {', '.join(KEYS)}", "remove or rename it")
    missing = next((key for key in ("map", "start", "instruction", "actions", "goal") if key not in value), None)
    if missing is not None:
        raise RuleError(f"no '{missing}'", "a complete episode", step)
    return value


def _parse_actions(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_ACTIONS:
        count = f"has {len(value):,} actions" if isinstance(value, list) else f"is {preview(value)}"
        raise RuleError(f"'actions' {count}", f"a list of 1 to {MAX_ACTIONS:,}")
    for number, action in enumerate(value, 1):
        if action not in ACTIONS:
            raise RuleError(f"action {number} is {preview(action)}", " or ".join(ACTIONS))
    numbers = tuple(map(ACTIONS.index, value))
    if STOP in numbers[:-1]:
        raise RuleError(f"action {numbers.index(STOP) + 1} of {len(numbers)} is 'stop'", "it at the end only")
    if numbers[-1] != STOP:
        raise RuleError(f"the last action is '{value[-1]}'", "'stop'", "add it")
    return numbers


def _check_walk(world: GridWorld, actions: Sequence[int], goal: tuple[int, int]) -> None:
    """Refuse actions that walk into something, or that do not end at the goal."""
    poses = walk(world.open(), world.start, actions)
    for number, ((before, after), action) in enumerate(zip(pairwise(poses), actions, strict=True), 1):
        if action == FORWARD and before == after:
            what = f"action {number} walks from row {before.row}, column {before.column} into what cannot be entered"
            raise RuleError(what, "a floor or a door ahead")
    end = [poses[-1].row, poses[-1].column]
    if end != list(goal):
        raise RuleError(f"the actions end at {end}", f"the goal {list(goal)}", "correct one of them")
