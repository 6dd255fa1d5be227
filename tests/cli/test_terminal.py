"""What the commands print: nothing from a file controls the terminal, and special files have the right exit code."""

import io
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from saccade.cli import main
from saccade.cli.printing import show_text

HIDDEN = "\u202e\x1b[2J"


def call(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_names_in_a_data_file_are_printed_without_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a\u202eb": "x", "c": "y"}\n' * 3, encoding="utf-8")
    result = call("train", path, "--task", "language_model", "--runs", tmp_path / "runs")
    assert result.exit_code == 3
    assert "\u202e" not in result.stderr and "a\\u202eb" in result.stderr


def test_names_of_files_are_printed_without_control_characters(tmp_path: Path) -> None:
    folder = tmp_path / f"model{HIDDEN}"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "\u202eevil"}')
    result = call("models", "show", folder)
    assert result.exit_code == 4
    message = result.stderr.removesuffix("\n")
    assert message.isprintable() and "\\u202e\\x1b[2J" in message


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(("terminal", "expected"), [(True, "日本\\u202e\\x1b[2J\n"), (False, f"日本{HIDDEN}\n")])
def test_the_output_of_a_model_is_escaped_at_a_terminal_only(terminal, expected, monkeypatch) -> None:
    stream = Stream(terminal)
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    show_text(f"日本{HIDDEN}\n")
    assert stream.getvalue() == expected


@pytest.mark.parametrize("kind", ["pipe", "device", "itself", "missing", "folder"])
def test_a_special_file_as_config_is_a_bad_model_for_every_command(kind, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = folder / "config.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"device": "/dev/zero", "itself": path, "missing": tmp_path / "nothing"}[kind])
    for arguments in (["models", "show", folder], ["predict", folder, "a"], ["look", folder, "a"]):
        result = call(*arguments)
        assert result.exit_code == 4, (arguments, result.stderr)
