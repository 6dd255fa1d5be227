"""The command `saccade serve`: its mistakes end with one line and a code."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from saccade.cli import main
from saccade.errors import UsageError
from saccade.serve.models import names_of


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing"], 2, "no run or model 'nothing'; name a run of"),
        (
            ["prose", "--name", "a", "--name", "b"],
            2,
            "--name must be given for each of the 1 models or for none, but is for 2",
        ),
        (["prose", "prose"], 2, "every model must have its own name, but two are called 'prose'; give each a --name"),
        (["prose", "--host", "nowhere.invalid"], 2, "--host nowhere.invalid lets other machines connect"),
        (["prose", "--allow-origin", "*"], 2, "--allow-origin must be like https://example.org, but is '*'"),
        (["prose", "--rows", "0"], 2, "0 is not in the range"),
    ],
)
def test_a_mistake_is_one_line(runs, monkeypatch, arguments, code, message):
    monkeypatch.delenv("SACCADE_API_KEY", raising=False)
    done = CliRunner().invoke(main, ["serve", *arguments, "--runs", str(runs), "--port", "0"])
    assert done.exit_code == code and message in done.stderr


def test_a_model_that_cannot_be_loaded_ends_the_server(runs, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    command = [sys.executable, "-m", "saccade", "serve", str(tmp_path / "broken"), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ})
    assert done.returncode == 4 and done.stderr.startswith("saccade: ") and "Traceback" not in done.stderr


def test_a_port_in_use_is_named(runs, live):
    done = CliRunner().invoke(main, ["serve", "prose", "--runs", str(runs), "--port", str(live.port)])
    assert done.exit_code == 5
    assert f"127.0.0.1 port {live.port} cannot be used: Address already in use; choose another" in done.stderr


def test_models_are_called_by_their_names_folders_and_files(tmp_path):
    (tmp_path / "gpt2").mkdir()
    assert names_of([str(tmp_path / "gpt2"), "minilm", "owner/name"], []) == ["gpt2", "minilm", "owner/name"]
    assert names_of(["minilm"], ["vectors"]) == ["vectors"]
    with pytest.raises(UsageError, match="the name of a model must be printable"):
        names_of(["minilm"], ["a\nb"])
