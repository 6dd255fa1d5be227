"""The dates of the demo: each can be read in one way only, and validation has formats that training has not."""

import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from saccade.data.tables.rows import FORBIDDEN, rows
from saccade.data.tables.sniffing import sniff
from saccade.demo import dates as demo
from saccade.errors import ResourceError, UsageError

pytest.importorskip("babel", reason="the demo needs babel; pip install 'saccade[demo]'")

ANSWERS = ["1987-03-03", "2014-08-12", "1975-05-09", "2031-10-05", "1952-02-21", "1999-11-17"]  # of the examples


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return demo.write_dates(tmp_path_factory.mktemp("dates"))


@pytest.fixture(scope="module")
def tables(files):
    """The rows of training and validation, read as any other table is."""
    return [[row.values for row in rows(sniff(path), ["source", "target", "locale", "format"])] for path in files]


def written(locale, format, iso, **spelling):
    (combination,) = [entry for entry in demo._combinations(locale) if entry.format == format]
    return demo.spell(combination, date.fromisoformat(iso), demo.Spelling(**spelling))


def test_the_files_are_tables_of_the_size_asked_for(files, tables):
    assert [path.name for path in files] == ["dates-train.tsv", "dates-valid.tsv"]
    assert [sniff(path).columns for path in files] == [("source", "target", "locale", "format")] * 2
    assert [len(table) for table in tables] == [40_000, 2_000]
    assert sorted(path.name for path in files[0].parent.iterdir()) == ["dates-train.tsv", "dates-valid.tsv"]


def test_there_are_many_languages_and_none_prevails(tables):
    train, _ = tables
    counts = {locale: sum(row[2] == locale for row in train) for locale in demo.LOCALES}
    assert len(counts) >= 38
    assert min(counts.values()) > 0.8 * len(train) / len(counts)


def test_every_answer_is_a_date_of_two_centuries(tables):
    for _, iso, _, _ in tables[0] + tables[1]:
        assert date.fromisoformat(iso).isoformat() == iso
        assert "1900-01-01" <= iso <= "2099-12-31"


def test_no_text_has_two_dates(tables):
    meaning = {}
    for text, iso, _, _ in tables[0] + tables[1]:
        assert meaning.setdefault(text, iso) == iso
    assert len(meaning) == 42_000  # no text twice either, so that nothing in validation was seen


def test_no_two_combinations_contradict_each_other_on_other_days():
    plan = demo.plan_dates()
    meaning = {}
    for combination in plan.train + plan.held_out:
        for day in (date(2016, month, number) for month in range(1, 13) for number in (4, 7, 11)):
            for spelling in demo.SPELLINGS:
                text = demo.spell(combination, day, spelling)
                assert meaning.setdefault(text, day) == day, (text, combination)


def test_a_date_that_depends_on_the_country_is_left_out(tables):
    ambiguous = {(combination.locale, combination.format) for combination in demo.plan_dates().ambiguous}
    assert {("en_US", "numeric"), ("en_GB", "numeric"), ("fr", "numeric"), ("pl", "dashed")} <= ambiguous
    assert {("en_US", "numeric, short weekday"), ("en_GB", "numeric, short weekday")} <= ambiguous
    assert not [text for text, *_ in tables[0] + tables[1] if re.fullmatch(r"\d\d?([/-])\d\d?\1\d+", text, re.ASCII)]


def test_validation_has_new_combinations_of_known_locales_formats_and_names(tables):
    train, valid = ({row[2:] for row in table} for table in tables)
    plan = demo.plan_dates()
    assert valid == {(combination.locale, combination.format) for combination in plan.held_out}
    assert train == {(combination.locale, combination.format) for combination in plan.train}
    assert not train & valid
    assert 0.08 < len(valid) / len(train | valid) < 0.12
    assert len({locale for locale, _ in valid}) >= 20
    assert {format for _, format in valid} <= {format for _, format in train}
    for combination in plan.held_out:
        known = {name for other in plan.train if other.locale == combination.locale for name in other.fields}
        assert combination.fields & {"MMM", "MMMM"}
        assert combination.fields <= known, combination


def test_the_plan_prints_its_numbers():
    plan = demo.plan_dates()
    total = len(plan.train) + len(plan.held_out)
    assert str(plan) == (
        f"{len(demo.LOCALES)} locales, 14 formats, {total} combinations of them, of which {len(plan.held_out)} are "
        f"held out; {len(plan.ambiguous)} more could mean two dates and are left out"
    )


def test_texts_hold_nothing_that_cannot_be_seen(tables):
    unseen = re.compile('[\u00a0\u202f\u200e\u200f\u2009\ufeff"]|  |^ | $')
    assert not [row for row in tables[0] + tables[1] if FORBIDDEN.search(row[0]) or unseen.search(row[0])]


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    here = demo.write_dates(tmp_path / "here", seed=3, train_rows=300, valid_rows=30)
    script = "from pathlib import Path; from saccade.demo.dates import write_dates; import sys; "
    script += "write_dates(Path(sys.argv[1]), seed=3, train_rows=300, valid_rows=30)"
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    root = Path(demo.__file__).parent.parent
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "there")], check=True, env=environment, cwd=root)
    other = demo.write_dates(tmp_path / "other", seed=4, train_rows=300, valid_rows=30)
    for path, different in zip(here, other, strict=True):
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes()
        assert path.read_bytes() != different.read_bytes()


@pytest.mark.parametrize(
    ("text", "iso"),
    list(zip(demo.EXAMPLES, ANSWERS, strict=True)),
)
def test_the_examples_are_not_in_the_files_but_could_be(tables, text, iso):
    assert text not in {row[0] for row in tables[0] + tables[1]}
    plan = demo.plan_dates()
    day = date.fromisoformat(iso)
    assert any(
        demo.spell(combination, day, way) == text
        for combination in plan.train + plan.held_out
        for way in demo.SPELLINGS
    )


@pytest.mark.parametrize(
    ("locale", "format", "spelling", "text"),
    [
        ("en_US", "long", {"ordinal": True}, "August 12th, 2014"),
        ("en_US", "full", {"plain": True}, "Tuesday August 12 2014"),
        ("en_GB", "idiom", {}, "the 12th of August 2014"),
        ("de", "idiom", {}, "Dienstag, den 12. August 2014"),
        ("de", "padded", {"ordinal": True}, "12.08.2014"),
        ("fr", "brief, weekday", {"case": "title"}, "Mardi 12 Août 2014"),
        ("es", "full", {"case": "title"}, "Martes, 12 de Agosto de 2014"),
        ("pt", "full", {"case": "title"}, "Terça-feira, 12 de Agosto de 2014"),
        ("ka", "long", {"case": "title"}, "12 აგვისტო, 2014"),
        ("fi", "long, weekday after", {}, "12. elokuuta 2014 (tiistai)"),
        ("ja", "long, short weekday", {}, "2014年8月12日(火)"),
        ("ko", "full", {}, "2014년 8월 12일 화요일"),
        ("vi", "idiom", {}, "ngày 12 tháng 8 năm 2014"),
        ("ru", "long", {}, "12 августа 2014 г."),
        ("ar_EG", "numeric", {}, "١٢/٨/٢٠١٤"),
        ("fa", "numeric", {}, "۲۰۱۴/۸/۱۲"),
        ("bn", "padded", {}, "১২/০৮/২০১৪"),
        ("mr", "dashed", {}, "१२-०८-२०१४"),
        ("hi", "long", {}, "12 अगस्त 2014"),
    ],
)
def test_a_date_is_written_as_people_write_it(locale, format, spelling, text):
    assert written(locale, format, "2014-08-12", **spelling) == text


def test_ordinal_numbers_have_their_endings():
    days = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 22: "22nd"}
    for day, ordinal in days.items():
        assert written("en_GB", "long", f"2022-05-{day:02}", ordinal=True) == f"{ordinal} May 2022"
    assert written("fr", "long", "2014-08-01", ordinal=True) == "1er août 2014"
    assert written("fr", "long", "2014-08-02", ordinal=True) == "2 août 2014"


def test_without_babel_the_message_names_the_extra(tmp_path, monkeypatch):
    demo.plan_dates.cache_clear()
    demo._locale.cache_clear()
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(UsageError, match=re.escape("the demo needs babel; pip install 'saccade[demo]'")):
        demo.write_dates(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(ResourceError, match=re.escape(f"cannot write the dates into {file}: File exists; name")):
        demo.write_dates(file, train_rows=10, valid_rows=10)
