"""The demo: dates as people write them in many languages, each beside its ISO date, made from Babel's locale data."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from babel import Locale

# fmt: off
LOCALES = (
    "en_US", "en_GB", "de", "nl", "sv", "da", "nb", "fr", "es", "it", "pt", "ca", "ro", "el", "tr", "ka", "pl",
    "cs", "sk", "sl", "hr", "sr", "bg", "ru", "uk", "lt", "lv", "et", "fi", "hu", "he", "ar_EG", "fa", "hi", "mr",
    "bn", "ta", "th", "vi", "id", "ja", "zh", "ko",
)
# fmt: on
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
MONDAY = date(2015, 6, 1)
# What letters and forms say beyond the locale data.
IDIOMS = {
    "en_US": "'the' d 'of' MMMM, y",
    "en_GB": "'the' d 'of' MMMM y",
    "de": "EEEE, 'den' d. MMMM y",
    "sv": "'den' d MMMM y",
    "da": "'den' d. MMMM y",
    "nb": "'den' d. MMMM y",
    "fr": "'le' d MMMM y",
    "es": "'el' d 'de' MMMM 'de' y",
    "it": "'il' d MMMM y",
    "pt": "'dia' d 'de' MMMM 'de' y",
    "ca": "'el' d MMMM 'de' y",
    "pl": "d MMMM y 'r'.",
    "cs": "'dne' d. MMMM y",
    "ru": "d MMMM y 'года'",
    "uk": "d MMMM y 'року'",
    "bg": "d MMMM y 'година'",
    "vi": "'ngày' d 'tháng' M 'năm' y",
    "id": "'tanggal' d MMMM y",
    "th": "'วันที่' d MMMM y",
}
# Babel names the digits of a locale without holding them.
ZEROS = {"arab": "٠", "arabext": "۰", "beng": "০", "deva": "०"}
SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u200e": None, "\u200f": None})
MONTH_NAMES = {"MMM", "MMMM"}
HELD_SHARE = 0.1  # of the combinations
CASES = ("as is", "lower", "title")

EXAMPLES: tuple[str, ...] = (
    "the 3rd of March 1987",
    "mardi 12 août 2014",
    "пятница, 9 мая 1975 г.",
    "2031年10月5日(日)",
    "২১ ফেব্রুয়ারী, ১৯৫২",
    "١٧ نوفمبر ١٩٩٩",
)


@dataclass(frozen=True)
class Combination:
    """One format of one locale: how a date is written there."""

    locale: str
    format: str
    pattern: str

    @property
    def fields(self) -> set[str]:
        """The names in the pattern and their widths, such as MMM or EEEE; numbers are left out."""
        return set(re.findall("M{3,}|E+", _unquoted(self.pattern)))


@dataclass(frozen=True)
class Spelling:
    """What a writer does to the printed form: ordinal numbers, no commas or dots, another case."""

    ordinal: bool = False
    plain: bool = False
    case: str = "as is"


SPELLINGS = [Spelling(o, p, case) for o in (False, True) for p in (False, True) for case in CASES]


@dataclass(frozen=True)
class Plan:
    """Which combinations are learned from, which are held out, and which were left out as ambiguous."""

    train: tuple[Combination, ...]
    held: tuple[Combination, ...]
    ambiguous: tuple[Combination, ...]

    def __str__(self) -> str:
        used = self.train + self.held
        locales, formats = len({one.locale for one in used}), len({one.format for one in used})
        return (
            f"{locales} locales, {formats} formats, {len(used)} combinations of them, of which {len(self.held)} "
            f"are held out; {len(self.ambiguous)} more could mean two dates and are left out"
        )


def write_dates(folder: Path, *, seed: int = 1, count: int = 40_000, held: int = 2_000) -> tuple[Path, Path]:
    """Write the training and the validation table: a date as text, its ISO date, and the locale and format it has.

    A validation row has a combination of locale and format that training never shows, though both occur there with
    others: the score says how well a new format of a known language is read. No text means two dates: four-digit
    years, the Gregorian calendar, 1900 to 2099, and no combination that another one contradicts.
    """
    plan = plan_dates(seed)
    rng = random.Random(seed)
    taken = set(EXAMPLES)
    parts = {
        folder / "dates-train.tsv": _draw(plan.train, count, rng, taken),
        folder / "dates-valid.tsv": _draw(plan.held, held, rng, taken),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, rows in parts.items():
            aside = path.with_name(path.name + ".tmp")
            aside.write_bytes("".join("\t".join(row) + "\n" for row in rows).encode())
            aside.replace(path)
    except OSError as error:
        raise ResourceError(f"cannot write the dates into {folder}: {error.strerror}; name another folder") from error
    train, valid = parts
    return train, valid


@cache
def plan_dates(seed: int = 1) -> Plan:
    """Choose the combinations: all that are never ambiguous, about a tenth of them held out."""
    known = [one for locale in LOCALES for one in _combinations(locale)]
    meant: defaultdict[str, set[date]] = defaultdict(set)
    writers: defaultdict[str, set[Combination]] = defaultdict(set)
    for one in known:
        for day in _probes():
            printed = _print(one, day, weekday=MONDAY)
            for text in {_respell(printed, one, day, spelling) for spelling in SPELLINGS}:
                meant[text].add(day)
                writers[text].add(one)
    clashing = {one for text, days in meant.items() if len(days) > 1 for one in writers[text]}
    shared = {one for several in writers.values() if len(several) > 1 for one in several}
    kept = [one for one in known if one not in clashing]
    held = _hold_out(kept, shared, random.Random(seed))
    train = tuple(one for one in kept if one not in held)
    return Plan(train, tuple(held), tuple(one for one in known if one in clashing))


def _probes() -> Iterator[date]:
    """Dates that two readings would confuse: every month, with days of one and two digits that could be a month."""
    return (date(2015, month, day) for month in range(1, 13) for day in (1, 2, 3, 10, 11, 12))


def _hold_out(kept: list[Combination], shared: set[Combination], rng: random.Random) -> list[Combination]:
    """Combinations that no other one writes alike, whose month and weekday names stay in training."""
    candidates = [one for one in kept if one not in shared and one.fields & MONTH_NAMES and one.format != "idiom"]
    rng.shuffle(candidates)
    names = Counter((one.locale, name) for one in kept for name in one.fields)
    formats = Counter(one.format for one in kept)
    held: list[Combination] = []
    for most in (1, 2, 3):  # of a locale, and three times as many of a format, so that neither prevails
        for one in candidates:
            known = formats[one.format] > 3 and all(names[one.locale, name] > 2 for name in one.fields)
            rare = sum(other.locale == one.locale for other in held) < most
            rare &= sum(other.format == one.format for other in held) < 3 * most
            if known and rare and one not in held and len(held) < HELD_SHARE * len(kept):
                held.append(one)
                formats[one.format] -= 1
                names.subtract((one.locale, name) for name in one.fields)
    return held


def _draw(
    combinations: tuple[Combination, ...], count: int, rng: random.Random, taken: set[str]
) -> list[tuple[str, ...]]:
    """Rows of a table under its header: each locale as often as any other, month names before mere numbers."""
    formats: defaultdict[str, list[Combination]] = defaultdict(list)
    for one in combinations:
        formats[one.locale] += [one] * (4 if one.fields & MONTH_NAMES else 1)  # names take more examples to learn
    locales = list(formats)
    rows: list[tuple[str, ...]] = [("source", "target", "locale", "format")]
    while len(rows) <= count:
        one = rng.choice(formats[rng.choice(locales)])
        day = FIRST + timedelta(rng.randrange((LAST - FIRST).days + 1))
        (case,) = rng.choices(CASES, (6, 1, 1))
        text = spell(one, day, Spelling(rng.random() < 0.3, rng.random() < 0.1, case))
        if text not in taken:
            taken.add(text)
            rows.append((text, day.isoformat(), one.locale, one.format))
    return rows


@cache
def _locale(name: str) -> "Locale":
    try:
        from babel import Locale
    except ImportError as error:
        raise UsageError("the demo needs babel; pip install 'saccade[demo]'") from error
    return Locale.parse(name)


def _combinations(name: str) -> list[Combination]:
    """The formats of a locale, without those that print what an earlier one prints."""
    different: dict[tuple[str, ...], Combination] = {}
    for format, pattern in _patterns(name).items():
        # A comma between day and month, as the data for Marathi have it, is nobody's habit.
        one = Combination(name, format, re.sub("d, M", "d M", pattern.translate(SPACES)))
        different.setdefault(tuple(_print(one, day, weekday=day) for day in _probes()), one)
    return list(different.values())


def _patterns(name: str) -> dict[str, str]:
    """The date patterns of a locale by our names of the formats, in the letters of CLDR (y, M, d, E)."""
    locale = _locale(name)
    styles = {style: str(format) for style, format in locale.date_formats.items()}
    skeletons = {key: str(format) for key, format in locale.datetime_skeletons.items()}
    full, long, brief, numeric = styles["full"], styles["long"], skeletons["yMMMd"], skeletons["yMd"]
    padded = re.sub("d+", "dd", re.sub("M+", "MM", numeric))
    dated = skeletons["yMMMEd"]
    spelled = re.sub("[Ec]+", "E", full) if "MMM" in long and "MMM" not in dated else re.sub(r"M{3,}\.?", "MMMM", dated)
    space = "" if "日" in long else " "
    return {
        "full": full,
        "long": long,
        "numeric": numeric,
        "padded": padded,
        "dashed": "-".join(re.findall("[dMy]+", _unquoted(padded))),
        "numeric, short weekday": skeletons["yMEd"],
        "brief": brief,
        "medium": styles["medium"],
        "long, short weekday": skeletons.get("yMMMMEd", spelled),
        "brief, short weekday": dated,
        "brief, weekday": re.sub("E+", "EEEE", dated),
        "long, weekday after": f"{long}{space}(cccc)",
        "brief, short weekday after": f"{brief}{space}(ccc)",
    } | ({"idiom": IDIOMS[name]} if name in IDIOMS else {})


def _unquoted(pattern: str) -> str:
    return re.sub("'[^']*'", "", pattern)


def spell(combination: Combination, day: date, spelling: Spelling) -> str:
    """A date as somebody would write it."""
    return _respell(_print(combination, day, weekday=day), combination, day, spelling)


def _print(combination: Combination, day: date, *, weekday: date) -> str:
    """A date as the locale data print it, with the weekday of another date if need be."""
    locale = _locale(combination.locale)
    from babel.dates import format_date

    pattern = combination.pattern
    if weekday != day:
        pattern = re.sub("[Ec]+", lambda field: f"'{format_date(weekday, field[0], locale)}'", pattern)
    return format_date(day, pattern, locale).translate(SPACES)


def _respell(text: str, combination: Combination, day: date, spelling: Spelling) -> str:
    """A printed date with what a writer does to it, in the digits of the locale."""
    locale = _locale(combination.locale)
    if spelling.ordinal or combination.format == "idiom":
        text = _ordinal(text, day.day, locale.language)
    if spelling.plain:
        text = re.sub(r"[,،](?= )|(?<=[^\W\d_]{3})\.(?= |$)", "", text)
    if spelling.case == "lower":
        text = text.lower()
    elif spelling.case == "title":
        literal = set(re.findall(r"\w+", " ".join(re.findall("'([^']*)'", combination.pattern))))
        text = re.sub(r"(?<![\w-])[^\W\d_]{3,}", lambda word: _capital(word[0], literal), text)
    zero = ZEROS.get(locale.default_numbering_system)
    return text.translate({ord("0") + digit: ord(zero) + digit for digit in range(10)}) if zero else text


def _capital(word: str, literal: set[str]) -> str:
    # Title and not upper case: Georgian has capitals that nobody puts in front of a word.
    return word if word in literal else word[0].title() + word[1:]


def _ordinal(text: str, number: int, language: str) -> str:
    """The day as an ordinal number where a language writes it so: English always, French on the first."""
    if language == "en":
        ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    elif language == "fr" and number == 1:
        ending = "er"
    else:
        return text
    # Between letters only: 3rd/4/2015 is no date.
    return re.sub(rf"(?<![\d/.-]){number}(?=,? |$)", f"{number}{ending}", text, count=1)
