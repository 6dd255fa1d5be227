"""Entities: names of people, places and other things read from word tags, and how many of them were found.

B begins an entity, I continues it, E (or L) ends it, S (or U) is one alone; O stands outside. What is no whole entity
by the rules of a scheme is read kindly, as the conlleval script of CoNLL-2000 does, unless a scheme is named.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from saccade import __version__
from saccade.metrics.generation import Counts, Score

Scheme = Literal["IOB1", "IOB2", "IOBES", "BILOU"]

LETTERS: Mapping[Scheme, str] = {"IOB1": "OBI", "IOB2": "OBI", "IOBES": "OBIES", "BILOU": "OBILU"}
NO_TYPE = "_"  # of a bare B or I
OUTSIDE = ("O", NO_TYPE)

Mark = tuple[str, str]  # the letter of a tag and its type


@dataclass(frozen=True)
class Entity:
    """A run of words of one type: from `start` up to, not including, `end`."""

    type: str
    start: int
    end: int


@dataclass(frozen=True)
class EntityScores:
    """Entities found and wanted, of all types together and of each."""

    all: Counts
    by_type: dict[str, Counts]
    signature: str

    @property
    def f1(self) -> Score:
        """The figure that papers report: F1 over the entities of all types, 0 to 100."""
        return Score(self.all.f1, self.signature)


def is_entity_tag(tag: str) -> bool:
    """Whether a tag marks an entity or the lack of one, and not, say, a part of speech."""
    return tag == "O" or (tag[:1] in ("B", "I", "E", "S", "L", "U") and tag[1:2] in ("", "-"))


def find_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme that sentences of tags are written in: by their letters, and by how entities begin."""
    iob1 = False
    letters: set[str] = set()
    for tags in sentences:
        marks = [OUTSIDE, *(_mark(tag) for tag in tags)]
        letters.update(letter for letter, _ in marks)
        iob1 = iob1 or any(mark[0] == "I" and _apart(before, mark) for before, mark in pairwise(marks))
    scheme: Scheme = "BILOU" if letters & {"L", "U"} else "IOBES" if letters & {"E", "S"} else "IOB2"
    return "IOB1" if iob1 and scheme == "IOB2" else scheme


def may_follow(before: str, tag: str, scheme: Scheme) -> bool:
    """Whether a scheme lets a tag come after another; O stands for the beginning and the end too."""
    if scheme == "IOB1":
        return True
    one, other = _mark(before), _mark(tag)
    inside = one[0] in ("B", "I")
    if other[0] in ("I", "E", "L"):
        return inside and one[1] == other[1]
    return scheme == "IOB2" or not inside  # the others say where an entity ends


def entities(tags: Sequence[str], scheme: Scheme | None = None) -> list[Entity]:
    """The entities of a sentence: every tag but O belongs to one, or only what a scheme allows if one is named."""
    marks = [_mark(tag) for tag in tags]
    if scheme is None:
        return list(_kind_entities(marks))
    if scheme not in LETTERS:
        raise ValueError(f"scheme must be one of {', '.join(get_args(Scheme))}, but is '{scheme}'")
    wrong = next((tag for tag, (letter, _) in zip(tags, marks, strict=True) if letter not in LETTERS[scheme]), None)
    if wrong is not None:
        raise ValueError(f"tags of {scheme} must begin with one of {', '.join(LETTERS[scheme])}, but one is '{wrong}'")
    if scheme in ("IOBES", "BILOU"):
        return list(_closed_entities(marks))
    if scheme == "IOB2":
        return list(_open_entities(marks, _begins_iob2))
    return [entity for entity in _open_entities(marks, _begins_iob1) if not _spoilt(marks, entity)]


def score_entities(
    found: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]], scheme: Scheme | None = None
) -> EntityScores:
    """Compare the tags found in sentences with those wanted; an entity is a hit if its type and both its ends agree.

    Equal to seqeval, without a scheme to its default mode (that of conlleval), with one to its strict mode.
    """
    if len(found) != len(wanted):
        raise ValueError(f"found and wanted must be as many sentences, but are {len(found)} and {len(wanted)}")
    hits: Counter[str] = Counter()
    ours: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    for number, (tags, others) in enumerate(zip(found, wanted, strict=True)):
        if len(tags) != len(others):
            message = f"sentence {number} must have as many tags found as wanted, but has {len(tags)} and {len(others)}"
            raise ValueError(message)
        left, right = set(entities(tags, scheme)), set(entities(others, scheme))
        hits.update(entity.type for entity in left & right)
        ours.update(entity.type for entity in left)
        theirs.update(entity.type for entity in right)
    mode = "conlleval" if scheme is None else f"strict|scheme:{scheme}"
    return EntityScores(
        all=Counts(hits.total(), ours.total(), theirs.total()),
        by_type={type: Counts(hits[type], ours[type], theirs[type]) for type in sorted(ours | theirs)},
        signature=f"entities:F1|average:micro|mode:{mode}|version:saccade-{__version__}",
    )


def _mark(tag: str) -> Mark:
    if not is_entity_tag(tag):
        raise ValueError(f"tags must be O or begin with B-, I-, E-, S-, L- or U-, but one is '{tag}'")
    return OUTSIDE if tag == "O" else (tag[0], tag[2:] or NO_TYPE)


def _apart(before: Mark, mark: Mark) -> bool:
    """Whether no entity holds both of two neighbours."""
    if before[0] == "O" or mark[0] == "O" or before[1] != mark[1]:
        return True
    return before[0] in "ESLU" or mark[0] in "BSU"


def _kind_entities(marks: Sequence[Mark]) -> Iterator[Entity]:
    """Runs of marks with nothing between them that parts them."""
    start = 0
    for place, (before, mark) in enumerate(pairwise([*marks, OUTSIDE]), 1):
        if not _apart(before, mark):
            continue
        if before[0] != "O":
            yield Entity(before[1], start, place)
        start = place


def _closed_entities(marks: Sequence[Mark]) -> Iterator[Entity]:
    """B I* E of one type, or S; with other letters B I* L, or U."""
    start: int | None = None
    for place, (letter, type) in enumerate(marks):
        if letter in "SU":
            yield Entity(type, place, place + 1)
        if start is not None and letter in "EL" and marks[start][1] == type:
            yield Entity(type, start, place + 1)
        goes_on = start is not None and letter == "I" and marks[start][1] == type
        start = place if letter == "B" else start if goes_on else None


def _begins_iob2(before: Mark, mark: Mark) -> bool:
    return mark[0] == "B"


def _begins_iob1(before: Mark, mark: Mark) -> bool:
    """Only a neighbour of the same type needs a B to part the two; there and nowhere else it may stand."""
    if mark[0] == "B":
        return before[0] != "O" and before[1] == mark[1]
    return mark[0] == "I" and (before[0] in "OB" or before[1] != mark[1])


def _spoilt(marks: Sequence[Mark], entity: Entity) -> bool:
    """Whether seqeval drops an entity of IOB1: a lone B before a B of another type, which may not stand there."""
    following = marks[entity.end] if entity.end < len(marks) else OUTSIDE
    return marks[entity.end - 1][0] == "B" == following[0] and following[1] != entity.type


def _open_entities(marks: Sequence[Mark], begins: Callable[[Mark, Mark], bool]) -> Iterator[Entity]:
    """A mark that begins an entity, and every I of its type behind it."""
    place = 0
    while place < len(marks):
        start = place
        place += 1
        if not begins(marks[start - 1] if start else OUTSIDE, marks[start]):
            continue
        while place < len(marks) and marks[place] == ("I", marks[start][1]):
            place += 1
        yield Entity(marks[start][1], start, place)
