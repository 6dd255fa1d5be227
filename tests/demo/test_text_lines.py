"""Pictures of text lines: complete texts that can be read in one way, in the files that they are listed in."""

import io
import random
import re
import string
import sys

import numpy as np
import pytest

from saccade.data.tables.rows import rows
from saccade.data.tables.sniffing import sniff
from saccade.demo import _lines as lines
from saccade.demo import text_lines
from saccade.errors import UsageError

Image = pytest.importorskip("PIL.Image", reason="the demo needs Pillow; pip install 'saccade[demo]'")

TEXTS = [lines.sample_text(random.Random(seed)) for seed in range(3000)]
WORDS = {word for text in TEXTS for word in text.split() if word.isalpha()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return text_lines.write_text_lines(tmp_path_factory.mktemp("lines"), train_rows=80, valid_rows=40)


@pytest.fixture(scope="module")
def tables(files):
    """The rows of training and validation, read as any other table is."""
    return [[row.values for row in rows(sniff(path), ["image", "text"])] for path in (files.train, files.valid)]


def test_every_kind_of_text_occurs():
    patterns = [
        "[a-z]+",
        "[A-Z][a-z]+",
        "[A-Z]+",
        "[a-z]+ [a-z]+",
        r"\d+",
        r"[\d,]+,\d{3}",
        r"\d+%",
        r"\$[\d,]+\.\d\d",
        r"\d{4}-\d\d-\d\d",
        r"\d\d/\d\d/\d{4}",
        r"\d\d\.\d\d\.\d\d",
        r"\d\d:\d\d",
    ]
    for pattern in patterns:
        assert sum(bool(re.fullmatch(pattern, text)) for text in TEXTS) > 20, pattern
    assert max(map(len, TEXTS)) <= 15 and len(set(TEXTS)) > 2500


def test_a_text_has_letters_or_digits_not_both_so_that_1_and_0_are_not_letters():
    assert not [text for text in TEXTS if re.search("[a-zA-Z]", text) and re.search(r"\d", text)]


def test_a_word_is_not_the_same_in_capitals():
    """A word of c, o, s, v, w, x and z alone has one form in two sizes."""
    assert not [word for word in WORDS if not set(word.lower()) - set("cosvwxz")]


def test_a_capital_i_is_not_a_small_l():
    """A word that starts with I goes on with a consonant, one that starts with l with a vowel."""
    assert [word for word in WORDS if word.startswith("I")]
    assert not [word for word in WORDS if re.match("I[aeiou]|l[^aeiou]", word)]


def test_every_letter_occurs():
    assert {letter for word in WORDS for letter in word.lower()} == set(string.ascii_lowercase)


@pytest.mark.parametrize("font", lines.font_names())
def test_no_font_cuts_a_text_off(font):
    """Nothing is written on the edge of the picture, however it is slanted, and something is in its middle."""
    for number, text in enumerate([*TEXTS[:60], "Qg$%,/:-j"]):
        rng = random.Random(number)
        size = lines.SIZES[number % 2]
        slant = rng.choice((-lines.SLANT, 0.0, lines.SLANT))
        ink = lines._ink(text, lines.load_font(font, size), slant, rng)
        assert ink.shape[0] == 32 and ink.max() > 0.9
        edge = np.concatenate([ink[0], ink[-1], ink[:, 0], ink[:, -1]])
        assert edge.max() < 0.2, (text, font, size, slant)


def test_every_font_has_every_character():
    """A missing character would be drawn as the same box as any other missing one."""
    characters = sorted({character for text in [*TEXTS, *text_lines.EXAMPLES] for character in text} - {" "})
    for name in lines.font_names():
        font = lines.load_font(name, 20)
        missing = bytes(font.getmask("\uffff"))
        assert not [character for character in characters if bytes(font.getmask(character)) in (missing, b"")], name


def test_pictures_are_grey_lines_with_contrast():
    for number, text in enumerate(TEXTS[:60]):
        with Image.open(io.BytesIO(lines.render_line(text, random.Random(number)))) as picture:
            assert (picture.mode, picture.height) == ("L", 32)
            assert 10 < picture.width < 260
            low, high = np.percentile(np.asarray(picture), [1, 99])
            assert high - low > 40


def test_tables_list_all_pictures_and_validation_has_other_texts(files, tables):
    train, valid = tables
    assert (len(train), len(valid)) == (80, 40)
    assert not {text for _, text in train} & {text for _, text in valid}
    assert len({text for _, text in valid}) == 40
    for path, table in zip((files.train, files.valid), tables, strict=True):
        assert {path.parent / name for name, _ in table} == set(path.parent.glob("*.png"))
    assert not {text for table in tables for _, text in table} & set(text_lines.EXAMPLES)


def test_the_plan_and_the_examples(files):
    assert files.plan == (
        f"{len(lines.font_names())} fonts, 80 lines for training and 40 for validation, whose texts are not in the "
        "training data"
    )
    assert [example["image"].name for example in files.examples] == ["1.png", "2.png", "3.png", "4.png"]
    assert all(example["image"].is_file() for example in files.examples)


def test_the_same_seed_gives_the_same_bytes(files, tmp_path):
    again = text_lines.write_text_lines(tmp_path / "again", train_rows=80, valid_rows=40)
    other = text_lines.write_text_lines(tmp_path / "other", seed=2, train_rows=80, valid_rows=40)
    for path in files.train.parents[1].rglob("*.*"):
        name = path.relative_to(files.train.parents[1])
        assert path.read_bytes() == (again.train.parents[1] / name).read_bytes()
        assert path.read_bytes() != (other.train.parents[1] / name).read_bytes()


def test_without_pillow_the_message_names_the_extra(tmp_path, monkeypatch):
    lines.font_names.cache_clear()
    lines.load_font.cache_clear()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=re.escape("the demo needs Pillow with FreeType; pip install 'saccade[demo]'")):
        text_lines.write_text_lines(tmp_path, train_rows=1, valid_rows=1)
