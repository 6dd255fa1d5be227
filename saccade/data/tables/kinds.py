"""Kinds of files that are not text, recognized by their first bytes, so that the error can name them."""

from pathlib import Path

from saccade.errors import DataError

ZIP = (b"PK\x03\x04", b"PK\x05\x06")
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
PICTURE_STEP = "name another file, or for pictures a folder with a folder for each class"
# (first bytes, kind, what to do); prefixes are long enough that no text starts with one.
SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image", PICTURE_STEP),
    (b"\xff\xd8\xff", "a JPEG image", PICTURE_STEP),
    (b"GIF87a", "a GIF image", PICTURE_STEP),
    (b"GIF89a", "a GIF image", PICTURE_STEP),
    (b"%PDF-", "a PDF document", "extract its text first, for example with pdftotext"),
    (b"\x93NUMPY", "a NumPy array", "write it as csv or jsonl"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "write it as csv or jsonl"),
    (b"PAR1\x15", "a Parquet file", "write it as jsonl, for example with pandas or pyarrow"),
    (b"ARROW1\x00\x00", "an Arrow file", "write it as jsonl, for example with pandas or pyarrow"),
    (b"Obj\x01", "an Avro file", "write it as jsonl"),
    (b"SQLite format 3\x00", "an SQLite database", "export the table as csv"),
    (OLE, "an old Office document", "save it as csv or plain text"),
    (b"{\\rtf", "a rich text document", "save it as plain text"),
    (b"BZh91AY&SY", "a bzip2 file", "unpack it with bunzip2"),
    (b"\xfd7zXZ\x00", "an xz file", "unpack it with unxz"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "unpack it with unzstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it with 7z"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it with unrar"),
    (b"\x7fELF", "an executable", ""),
    (b"OggS\x00", "an Ogg audio file", ""),
    (b"ID3\x03", "an MP3 audio file", ""),
    (b"ID3\x04", "an MP3 audio file", ""),
    (b"fLaC\x00", "a FLAC audio file", ""),
    (b"GGUF\x03", "a GGUF model", ""),
    (
        b"version https://git-lfs.github.com/spec/",
        "a Git LFS pointer, not the file itself",
        "fetch it with git lfs pull",
    ),
)
PLAIN_ZIP = ("a zip archive", "unpack it with unzip and name the file or folder")
# Only for tables: a language model may well be trained on HTML.
PAGES = (b"<!doctype html", b"<html", b"<?xml")
# Documents of Office programs are zip archives; their content is not always within the first bytes.
SHEET, TEXT = "save it as csv", "save it as plain text"
DOCUMENTS: dict[str, tuple[str, str]] = {
    ".xlsx": ("an Excel workbook", SHEET),
    ".xlsm": ("an Excel workbook", SHEET),
    ".xls": ("an Excel workbook", SHEET),
    ".ods": ("an OpenDocument spreadsheet", SHEET),
    ".numbers": ("a Numbers spreadsheet", SHEET),
    ".docx": ("a Word document", TEXT),
    ".doc": ("a Word document", TEXT),
    ".odt": ("an OpenDocument text", TEXT),
    ".pptx": ("a PowerPoint presentation", TEXT),
    ".epub": ("an e-book", TEXT),
}
STEPS = {".pdf": "extract its text, for example with pdftotext,", ".parquet": "write it as jsonl"}
ZEROS = 0.1  # fraction of zero bytes that no text has
PROBED = 4096  # bytes in which they are counted
FEWEST_ZEROS = 16  # fewer are reported as characters, with their lines


def step_by_name(name: str) -> str:
    """Return what to do with a file that is not text, judged by its name alone; empty if unknown."""
    suffix = Path(name.lower()).suffix
    return STEPS.get(suffix) or DOCUMENTS.get(suffix, ("", ""))[1]


def binary_kind(head: bytes, suffix: str = "") -> tuple[str, str] | None:
    """Return the kind of a file that is not text and what to do with it, or None for what may be text."""
    if head.startswith((*ZIP, OLE)) and suffix in DOCUMENTS:
        return DOCUMENTS[suffix]
    for signature, name, step in SIGNATURES:
        if head.startswith(signature):
            return name, step
    if head.startswith(ZIP):
        return _zip_kind(head)
    if head[257:262] == b"ustar":
        return "a tar archive", "unpack it with tar xf and name the folder"
    if head[:4] == b"RIFF" and head[8:12] in (b"WAVE", b"AVI ", b"WEBP"):
        return f"a {head[8:12].decode().strip()} file", ""
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5:
        return "a Python pickle, which can run code when it is opened", "write it as csv or jsonl"
    if len(head) > 10 and head[8:10] == b'{"' and head[4:8] == b"\x00\x00\x00\x00":
        return "a safetensors file", ""
    return None


def _zip_kind(head: bytes) -> tuple[str, str]:
    contents = (
        (b"xl/", ".xlsx"),
        (b"word/", ".docx"),
        (b"ppt/", ".pptx"),
        (b"opendocument.spreadsheet", ".ods"),
        (b"opendocument.text", ".odt"),
        (b"application/epub", ".epub"),
    )
    for content, suffix in contents:
        if content in head:
            return DOCUMENTS[suffix]
    if b"data.pkl" in head:
        return "a PyTorch checkpoint", ""
    return PLAIN_ZIP


def guess_utf16(head: bytes) -> str | None:
    """Return the UTF-16 variant of a file without a byte order mark, guessed from its zero bytes, or None."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    half = max(len(head) // 2, 1)
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    return None


def refuse_binary(path: Path, head: bytes, encoding: str | None) -> None:
    """Raise an error with the kind of a file that is not text."""
    kind = binary_kind(head, path.suffix.lower())
    if kind is not None:
        name, step = kind
        message = f"{path}:1:1: looks like {name}, expected text, csv, tsv or jsonl"
        raise DataError(f"{message}; {step or 'name another file'}")
    if encoding is None:
        wide = guess_utf16(head[:4096])
        if wide is not None:
            message = f"{path}:1:1: looks like {wide} text without a byte order mark, expected utf-8"
            raise DataError(f"{message}; set data.encoding={wide}")
        zeros = head[:PROBED].count(0)
        if zeros > max(FEWEST_ZEROS, ZEROS * len(head[:PROBED])):
            first = head.index(0)
            line, column = head.count(b"\n", 0, first) + 1, first - head.rfind(b"\n", 0, first)
            message = f"{path}:{line}:{column}: {zeros:,} of the first {len(head[:PROBED]):,} bytes are zero"
            raise DataError(f"{message}, expected text; name another file, or copy this one again if it is damaged")


def refuse_page(path: Path, head: bytes, format: str) -> None:
    """Raise an error for a web page with the name of a table: most often an error page saved as the data."""
    if head[:256].lstrip().lower().startswith(PAGES):
        message = f"{path}:1:1: looks like a web page or XML, expected {format}"
        raise DataError(f"{message}; the download may have failed: open it in a browser")
