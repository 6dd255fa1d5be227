"""The dates demo: dates as people write them in many languages, each with its ISO date, from Babel's locale data."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.demo._demo import Demo, DemoFiles, DemoTask
from saccade.demo._files import table, write_files
from saccade.errors import UsageError

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
# Formats of letters and forms, which the locale data do not have.
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
# Babel names the numbering system of a locale, but does not have its digits.
ZEROS = {"arab": "٠", "arabext": "۰", "beng": "০", "deva": "०"}
SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u200e": None, "\u200f": None})
MONTH_NAMES = {"MMM", "MMMM"}
HELD_OUT_FRACTION = 0.1  # of the combinations
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
        """The month and weekday fields of the pattern with their widths, such as MMM or EEEE, without numbers."""
        return set(re.findall("M{3,}|E+", _unquoted(self.pattern)))


@dataclass(frozen=True)
class Spelling:
    """Variations of the printed form: ordinal numbers, no punctuation, letter case."""

    ordinal: bool = False
    plain: bool = False
    case: str = "as is"


SPELLINGS = [Spelling(o, p, case) for o in (False, True) for p in (False, True) for case in CASES]


@dataclass(frozen=True)
class Plan:
    """Combinations for training, those held out for validation, and those left out as ambiguous."""

    train: tuple[Combination, ...]
    held_out: tuple[Combination, ...]
    ambiguous: tuple[Combination, ...]

    def __str__(self) -> str:
        used = self.train + self.held_out
        locales, formats = len({entry.locale for entry in used}), len({entry.format for entry in used})
        return (
            f"{locales} locales, {formats} formats, {len(used)} combinations of them, of which {len(self.held_out)} "
            f"are held out; {len(self.ambiguous)} more could mean two dates and are left out"
        )


def write_dates(folder: Path, *, seed: int = 1, train_rows: int = 40_000, valid_rows: int = 2_000) -> tuple[Path, Path]:
    """Write the training and the validation table: a date as text, its ISO date, its locale and its format.

    A validation row has a combination of locale and format that is not in the training data, though both occur there
    with others: the score measures how well a new format of a known language is read. No text means two dates:
    four-digit years, the Gregorian calendar, 1900 to 2099, and no combination that contradicts another.
    """
    plan = plan_dates(seed)
    rng = random.Random(seed)
    excluded = set(EXAMPLES)
    tables = {
        "dates-train.tsv": _sample_rows(plan.train, train_rows, rng, excluded),
        "dates-valid.tsv": _sample_rows(plan.held_out, valid_rows, rng, excluded),
    }
    write_files(folder, {name: partial(table, rows, "\t") for name, rows in tables.items()}, "dates")
    train, valid = (folder / name for name in tables)
    return train, valid


@cache
def plan_dates(seed: int = 1) -> Plan:
    """Select all combinations that are never ambiguous, and hold out about a tenth of them."""
    combinations = [combination for locale in LOCALES for combination in _combinations(locale)]
    meanings: defaultdict[str, set[date]] = defaultdict(set)
    writers: defaultdict[str, set[Combination]] = defaultdict(set)
    for combination in combinations:
        for day in _probes():
            printed = _print(combination, day, weekday=MONDAY)
            for text in {_respell(printed, combination, day, spelling) for spelling in SPELLINGS}:
                meanings[text].add(day)
                writers[text].add(combination)
    ambiguous = {combination for text, days in meanings.items() if len(days) > 1 for combination in writers[text]}
    shared = {combination for several in writers.values() if len(several) > 1 for combination in several}
    kept = [combination for combination in combinations if combination not in ambiguous]
    held_out = _hold_out(kept, shared, random.Random(seed))
    train = tuple(combination for combination in kept if combination not in held_out)
    return Plan(train, tuple(held_out), tuple(combination for combination in combinations if combination in ambiguous))


def _probes() -> Iterator[date]:
    """Dates that two formats could confuse: every month, with days of one and two digits that could be a month."""
    return (date(2015, month, day) for month in range(1, 13) for day in (1, 2, 3, 10, 11, 12))


def _hold_out(kept: list[Combination], shared: set[Combination], rng: random.Random) -> list[Combination]:
    """Select combinations that print unlike every other, and whose month and weekday names stay in training."""
    candidates = [
        combination
        for combination in kept
        if combination not in shared and combination.fields & MONTH_NAMES and combination.format != "idiom"
    ]
    rng.shuffle(candidates)
    names = Counter((combination.locale, name) for combination in kept for name in combination.fields)
    formats = Counter(combination.format for combination in kept)
    held_out: list[Combination] = []
    for limit in (1, 2, 3):  # per locale, and three times as many per format, so that neither dominates
        for candidate in candidates:
            learnable = formats[candidate.format] > 3 and all(names[candidate.locale, n] > 2 for n in candidate.fields)
            rare = sum(other.locale == candidate.locale for other in held_out) < limit
            rare &= sum(other.format == candidate.format for other in held_out) < 3 * limit
            room = len(held_out) < HELD_OUT_FRACTION * len(kept)
            if learnable and rare and candidate not in held_out and room:
                held_out.append(candidate)
                formats[candidate.format] -= 1
                names.subtract((candidate.locale, name) for name in candidate.fields)
    return held_out


def _sample_rows(
    combinations: tuple[Combination, ...], count: int, rng: random.Random, excluded: set[str]
) -> list[tuple[str, ...]]:
    """Return a header and random rows without duplicates: locales equally often, month names more than numbers."""
    formats: defaultdict[str, list[Combination]] = defaultdict(list)
    for combination in combinations:
        formats[combination.locale] += [combination] * (4 if combination.fields & MONTH_NAMES else 1)
    locales = list(formats)
    rows: list[tuple[str, ...]] = [("source", "target", "locale", "format")]
    while len(rows) <= count:
        combination = rng.choice(formats[rng.choice(locales)])
        day = FIRST + timedelta(rng.randrange((LAST - FIRST).days + 1))
        (case,) = rng.choices(CASES, (6, 1, 1))
        text = spell(combination, day, Spelling(rng.random() < 0.3, rng.random() < 0.1, case))
        if text not in excluded:
            excluded.add(text)
            rows.append((text, day.isoformat(), combination.locale, combination.format))
    return rows


@cache
def _locale(name: str) -> "Locale":
    try:
        from babel import Locale
    except ImportError as error:
        raise UsageError("the demo needs babel; pip install 'saccade[demo]'") from error
    return Locale.parse(name)


def _combinations(name: str) -> list[Combination]:
    """Return the formats of a locale, without those that print the same as an earlier one."""
    distinct: dict[tuple[str, ...], Combination] = {}
    for format, pattern in _patterns(name).items():
        # The data for Marathi have a comma between day and month, which is not in use.
        combination = Combination(name, format, re.sub("d, M", "d M", pattern.translate(SPACES)))
        distinct.setdefault(tuple(_print(combination, day, weekday=day) for day in _probes()), combination)
    return list(distinct.values())


def _patterns(name: str) -> dict[str, str]:
    """Return the date patterns of a locale by format name, in CLDR letters (y, M, d, E)."""
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
    """Return a date as a person would write it."""
    return _respell(_print(combination, day, weekday=day), combination, day, spelling)


def _print(combination: Combination, day: date, *, weekday: date) -> str:
    """Return a date as the locale data print it, optionally with the weekday of another date."""
    locale = _locale(combination.locale)
    from babel.dates import format_date

    pattern = combination.pattern
    if weekday != day:
        pattern = re.sub("[Ec]+", lambda field: f"'{format_date(weekday, field[0], locale)}'", pattern)
    return format_date(day, pattern, locale).translate(SPACES)


def _respell(text: str, combination: Combination, day: date, spelling: Spelling) -> str:
    """Apply a spelling to a printed date, in the digits of the locale."""
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
    # Title case, not upper case: Georgian capitals are not used at the start of a word.
    return word if word in literal else word[0].title() + word[1:]


def _ordinal(text: str, number: int, language: str) -> str:
    """Write the day as an ordinal number: always in English, on the first of a month in French."""
    if language == "en":
        ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    elif language == "fr" and number == 1:
        ending = "er"
    else:
        return text
    # Not in numeric dates: 3rd/4/2015 is not a date.
    return re.sub(rf"(?<![\d/.-]){number}(?=,? |$)", f"{number}{ending}", text, count=1)


def _write_demo(folder: Path) -> DemoFiles:
    train, valid = write_dates(folder)
    return DemoFiles(train, str(plan_dates()), tuple({"source": text} for text in EXAMPLES), valid)


DEMO = Demo(
    "dates in some 40 languages",
    {
        "translation": DemoTask(
            "convert dates, as people write them, to ISO dates such as 2014-08-12",
            _write_demo,
            "attention of each digit to the letters of",
            minutes=0.9,
            preset="dates",
        )
    },
)
