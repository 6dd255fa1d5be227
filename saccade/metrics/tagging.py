"""Metrics of tagging: entities of tagged sentences and their F1, equal to seqeval and conlleval.

B begins an entity, I continues it, E (or L) ends it, S (or U) is a single-token entity, O is outside. Entities that
break the rules of their scheme are read leniently, as the conlleval script does, unless a scheme is named.
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

ParsedTag = tuple[str, str]  # the letter of a tag and its type


@dataclass(frozen=True)
class Entity:
    """A span of words of one type: from `start` up to, not including, `end`."""

    type: str
    start: int
    end: int


@dataclass(frozen=True)
class EntityScores:
    """Predicted and reference entities, of all types and by type."""

    all: Counts
    by_type: dict[str, Counts]
    signature: str

    @property
    def f1(self) -> Score:
        """Micro-averaged F1 over the entities of all types, 0 to 100: the score that papers report."""
        return Score(self.all.f1, self.signature)


def is_entity_tag(tag: str) -> bool:
    """Whether a tag is an entity tag (B-, I-, ... or O) and not, say, a part of speech."""
    return tag == "O" or (tag[:1] in ("B", "I", "E", "S", "L", "U") and tag[1:2] in ("", "-"))


def find_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Return the tagging scheme of some sentences: by their letters, and by how entities begin."""
    iob1 = False
    letters: set[str] = set()
    for tags in sentences:
        parsed = [OUTSIDE, *(_parse(tag) for tag in tags)]
        letters.update(letter for letter, _ in parsed)
        iob1 = iob1 or any(tag[0] == "I" and _separate(before, tag) for before, tag in pairwise(parsed))
    scheme: Scheme = "BILOU" if letters & {"L", "U"} else "IOBES" if letters & {"E", "S"} else "IOB2"
    return "IOB1" if iob1 and scheme == "IOB2" else scheme


def may_follow(before: str, tag: str, scheme: Scheme) -> bool:
    """Whether a scheme allows a tag after another; O stands for the start and the end of a sentence too."""
    if scheme == "IOB1":
        return True
    previous, current = _parse(before), _parse(tag)
    inside = previous[0] in ("B", "I")
    if current[0] in ("I", "E", "L"):
        return inside and previous[1] == current[1]
    return scheme == "IOB2" or not inside  # the other schemes mark where an entity ends


def entities(tags: Sequence[str], scheme: Scheme | None = None) -> list[Entity]:
    """Return the entities of a sentence: every tag but O belongs to one; with a scheme only what it allows."""
    parsed = [_parse(tag) for tag in tags]
    if scheme is None:
        return list(_lenient_entities(parsed))
    if scheme not in LETTERS:
        raise ValueError(f"scheme must be one of {', '.join(get_args(Scheme))}, but is '{scheme}'")
    wrong = next((tag for tag, (letter, _) in zip(tags, parsed, strict=True) if letter not in LETTERS[scheme]), None)
    if wrong is not None:
        raise ValueError(f"tags of {scheme} must begin with one of {', '.join(LETTERS[scheme])}, but one is '{wrong}'")
    if scheme in ("IOBES", "BILOU"):
        return list(_closed_entities(parsed))
    if scheme == "IOB2":
        return list(_open_entities(parsed, _begins_iob2))
    return [entity for entity in _open_entities(parsed, _begins_iob1) if not _dropped(parsed, entity)]


def score_entities(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], scheme: Scheme | None = None
) -> EntityScores:
    """Compare predicted with reference tags; an entity is a hit if its type and both its boundaries agree.

    Equal to seqeval, without a scheme to its default mode (that of conlleval), with one to its strict mode.
    """
    if len(predictions) != len(references):
        counts = f"{len(predictions)} and {len(references)}"
        raise ValueError(f"predictions and references must have the same number of sentences, but have {counts}")
    hits: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    for number, (tags, reference_tags) in enumerate(zip(predictions, references, strict=True)):
        if len(tags) != len(reference_tags):
            counts = f"{len(tags)} and {len(reference_tags)}"
            raise ValueError(f"sentence {number} must have as many predicted tags as reference tags, but has {counts}")
        left, right = set(entities(tags, scheme)), set(entities(reference_tags, scheme))
        hits.update(entity.type for entity in left & right)
        predicted.update(entity.type for entity in left)
        expected.update(entity.type for entity in right)
    mode = "conlleval" if scheme is None else f"strict|scheme:{scheme}"
    return EntityScores(
        all=Counts(hits.total(), predicted.total(), expected.total()),
        by_type={type: Counts(hits[type], predicted[type], expected[type]) for type in sorted(predicted | expected)},
        signature=f"entities:F1|average:micro|mode:{mode}|version:saccade-{__version__}",
    )


def _parse(tag: str) -> ParsedTag:
    if not is_entity_tag(tag):
        raise ValueError(f"tags must be O or begin with B-, I-, E-, S-, L- or U-, but one is '{tag}'")
    return OUTSIDE if tag == "O" else (tag[0], tag[2:] or NO_TYPE)


def _separate(before: ParsedTag, tag: ParsedTag) -> bool:
    """Whether two neighbours belong to different entities, or to none."""
    if before[0] == "O" or tag[0] == "O" or before[1] != tag[1]:
        return True
    return before[0] in "ESLU" or tag[0] in "BSU"


def _lenient_entities(parsed: Sequence[ParsedTag]) -> Iterator[Entity]:
    """Yield runs of tags that no boundary separates."""
    start = 0
    for position, (before, tag) in enumerate(pairwise([*parsed, OUTSIDE]), 1):
        if not _separate(before, tag):
            continue
        if before[0] != "O":
            yield Entity(before[1], start, position)
        start = position


def _closed_entities(parsed: Sequence[ParsedTag]) -> Iterator[Entity]:
    """Yield B I* E of one type, or S; in BILOU B I* L, or U."""
    start: int | None = None
    for position, (letter, type) in enumerate(parsed):
        if letter in "SU":
            yield Entity(type, position, position + 1)
        if start is not None and letter in "EL" and parsed[start][1] == type:
            yield Entity(type, start, position + 1)
        continues = start is not None and letter == "I" and parsed[start][1] == type
        start = position if letter == "B" else start if continues else None


def _begins_iob2(before: ParsedTag, tag: ParsedTag) -> bool:
    return tag[0] == "B"


def _begins_iob1(before: ParsedTag, tag: ParsedTag) -> bool:
    """B separates an entity from a neighbour of the same type, and is allowed nowhere else."""
    if tag[0] == "B":
        return before[0] != "O" and before[1] == tag[1]
    return tag[0] == "I" and (before[0] in "OB" or before[1] != tag[1])


def _dropped(parsed: Sequence[ParsedTag], entity: Entity) -> bool:
    """Whether seqeval drops an entity of IOB1: a single B before a B of another type, which IOB1 does not allow."""
    following = parsed[entity.end] if entity.end < len(parsed) else OUTSIDE
    return parsed[entity.end - 1][0] == "B" == following[0] and following[1] != entity.type


def _open_entities(parsed: Sequence[ParsedTag], begins: Callable[[ParsedTag, ParsedTag], bool]) -> Iterator[Entity]:
    """Yield each tag that begins an entity, with every I of its type after it."""
    position = 0
    while position < len(parsed):
        start = position
        position += 1
        if not begins(parsed[start - 1] if start else OUTSIDE, parsed[start]):
            continue
        while position < len(parsed) and parsed[position] == ("I", parsed[start][1]):
            position += 1
        yield Entity(parsed[start][1], start, position)
