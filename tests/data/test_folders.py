"""Folders of source code are read as text, and what is not text is skipped with a note; other files are named."""

import io
import zipfile
from pathlib import Path

import pytest

from saccade.data.formats.corpus import read_documents
from saccade.data.settings import TextSettings
from saccade.data.tables.files import find, skipped_notes
from saccade.data.tables.sniffing import sniff
from saccade.errors import DataError, UsageError
from saccade.tasks import guess_task


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of code with what is usually beside it."""
    files = {
        "README.md": b"About it.\n",
        "setup.py": b"import this\n",
        "src/__init__.py": b"",
        "src/main.py": b"def main():\n\tpass\n\tpass\n\tpass\n",
        "src/rows.js": b'{"a": 1}\n',
        "src/fast.c": b"int main(void) { return 0; }\n",
        "src/old.c": b"/* caf\xe9 */\n",
        "src/noise.h": b"\x00\x01\x02",
        "src/logo.png": b"\x89PNG\r\n\x1a\n",
        "node_modules/left/pad.js": b"no\n",
        ".git/config": b"no\n",
        ".hidden.py": b"no\n",
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


def test_a_folder_of_source_code_is_text(project: Path) -> None:
    names = [str(path.relative_to(project)) for path in find(project)]
    assert names == ["README.md", "setup.py", "src/fast.c", "src/main.py", "src/rows.js"]
    assert {sniff(path).format for path in find(project)} == {"text"}
    assert guess_task(project) == "language_model"
    files, _ = TextSettings().find(project)
    assert "".join(read_documents(files).texts).count("main") == 2


def test_skipped_files_are_reported_by_reason(project: Path) -> None:
    assert sorted(skipped_notes(project)) == [
        "1 file skipped: binary (first: src/noise.h)",
        "1 file skipped: empty (first: src/__init__.py)",
        "1 file skipped: not code or text by name (first: src/logo.png)",
        "1 file skipped: not utf-8 (first: src/old.c)",
    ]
    assert TextSettings().notes(project) == skipped_notes(project)
    assert skipped_notes(project / "setup.py") == []


def test_code_in_another_encoding_is_read_with_it(project: Path) -> None:
    assert project / "src" / "old.c" in find(project, "cp1252")
    files, _ = TextSettings(encoding="cp1252").find(project)
    assert "/* café */\n" in list(read_documents(files).texts)


def test_an_encoding_that_does_not_exist_is_named(project: Path) -> None:
    with pytest.raises(UsageError, match="encoding must be a text encoding of Python, but is 'nope'"):
        find(project, "nope")


def test_a_script_beside_the_data_is_not_data(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("some text\n")
    (tmp_path / "prepare.py").write_text("import this\n")
    assert find(tmp_path) == [tmp_path / "a.txt", tmp_path / "b.txt"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.csv").write_text("text,label\na b,x\n")
    with pytest.raises(DataError, match="holds 1 csv and 2 text files, expected one format"):
        find(tmp_path)


def zipped(*names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, "application/vnd.oasis.opendocument.spreadsheet" if name == "mimetype" else "x")
    return stream.getvalue()


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(64)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("t.xlsx", zipped("docProps/app.xml"), "looks like an Excel workbook, .*; save it as csv"),
        ("t.csv", zipped("xl/workbook.xml"), "looks like an Excel workbook, .*; save it as csv"),
        ("t.xls", OLE, "looks like an Excel workbook, .*; save it as csv"),
        ("t.ods", zipped("content.xml"), "looks like an OpenDocument spreadsheet, .*; save it as csv"),
        ("t.csv", zipped("mimetype"), "looks like an OpenDocument spreadsheet, .*; save it as csv"),
        ("t.docx", zipped("[Content_Types].xml"), "looks like a Word document, .*; save it as plain text"),
        ("t.doc", OLE, "looks like a Word document, .*; save it as plain text"),
        ("t.pdf", b"%PDF-1.7\n", "looks like a PDF document, .*pdftotext"),
        ("t.parquet", b"PAR1\x15\x04", "looks like a Parquet file, .*; write it as jsonl"),
        ("t.zip", zipped("a.txt"), "looks like a zip archive, .*; unpack it"),
    ],
)
def test_files_of_other_programs_are_named_with_what_to_do(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}:1:1: {message}"):
        guess_task(tmp_path / name)


def test_a_folder_of_workbooks_says_what_to_do(tmp_path: Path) -> None:
    for name in ("a.xlsx", "b.xlsx"):
        (tmp_path / name).write_bytes(zipped("xl/workbook.xml"))
    with pytest.raises(DataError, match=r"holds 2 other files \(\.xlsx\), expected .*; save it as csv first"):
        find(tmp_path)
