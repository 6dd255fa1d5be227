"""SentencePiece: cut and numbered as the library itself does it, and no damaged file gets through."""

import json
import random

import pytest

from saccade.data.text.sentencepiece import is_marian, read_pieces, read_sides
from saccade.errors import ModelFileError

TEXTS = ["The cat sat.", "  two   spaces ", "Ünïcödé ﬁne ½", "unknown ☃ sign", "", "A-b_c 12,5", "猫が座った。"]


def test_texts_are_cut_as_the_library_cuts_them(marian_folder):
    library = pytest.importorskip("sentencepiece")
    vocabulary = json.loads((marian_folder / "vocab.json").read_text())
    assert is_marian(marian_folder) and not is_marian(marian_folder.parent)
    for name, tokenizer in zip(("source", "target"), read_sides(marian_folder), strict=True):
        theirs = library.SentencePieceProcessor(model_file=str(marian_folder / f"{name}.spm"))
        for text in TEXTS:
            wanted = [vocabulary[theirs.id_to_piece(number)] for number in theirs.encode(text)]
            assert tokenizer.encode(text) == wanted, text
        ids = tokenizer.encode("The cat sat.") if name == "source" else tokenizer.encode("xyz uvw.")
        assert tokenizer.decode(ids) == ("The cat sat." if name == "source" else "xyz uvw.")


def test_pieces_are_shown_with_their_spaces(marian_folder):
    source, _ = read_sides(marian_folder)
    ids = source.encode("The cat")
    assert "".join(source.pieces(ids)) == " The cat"
    assert b"".join(source.raw(ids)) == b" The cat"


@pytest.mark.parametrize("share", [0.3, 0.9999])
def test_a_cut_file_is_refused(marian_folder, tmp_path, share):
    complete = (marian_folder / "source.spm").read_bytes()
    bad = tmp_path / "source.spm"
    bad.write_bytes(complete[: int(len(complete) * share)])
    with pytest.raises(ModelFileError, match="must be a complete SentencePiece file"):
        read_pieces(bad)


def test_noise_is_refused_and_never_crashes(tmp_path):
    chance, bad = random.Random(1), tmp_path / "source.spm"
    for _ in range(200):
        bad.write_bytes(chance.randbytes(chance.randint(0, 300)))
        with pytest.raises(ModelFileError):
            read_pieces(bad)


def test_a_vocabulary_with_a_gap_is_refused(marian_folder, tmp_path):
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes((marian_folder / name).read_bytes())
    vocabulary = json.loads((marian_folder / "vocab.json").read_text())
    last = max(vocabulary, key=lambda name: vocabulary[name])
    (tmp_path / "vocab.json").write_text(json.dumps({**vocabulary, last: vocabulary[last] + 5}))
    with pytest.raises(ModelFileError, match="without a gap"):
        read_sides(tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0}))
    with pytest.raises(ModelFileError, match="must have <unk> and </s>"):
        read_sides(tmp_path)
