"""The command `saccade serve`: its mistakes end with one line and a code."""

import os
import resource
import subprocess
import sys

import pytest
from click.testing import CliRunner

import saccade
from saccade.cli import main
from saccade.errors import UsageError
from saccade.serve.models import names_of
from saccade.serve.running import raise_file_limit
from saccade.tasks._language_model import memory
from tests.serve.live import serving


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


def test_as_many_texts_are_generated_at_once_as_fit_into_memory(runs, monkeypatch, capsys):
    monkeypatch.setattr(memory, "machine_bytes", lambda: 10 * memory.row_bytes(prose_config(runs), 512))
    with serving(runs, ("prose",)) as live:
        assert live.generator().engine.rows == 6
        assert live.complete(max_tokens=1).status_code == 200
    assert "prose generates 6 texts at once: the cache of 16 does not fit into memory" in capsys.readouterr().out


def test_rows_that_do_not_fit_into_memory_are_refused_if_they_are_given(runs, monkeypatch):
    monkeypatch.setattr(memory, "machine_bytes", lambda: 10 * memory.row_bytes(prose_config(runs), 512))
    arguments = ["prose", "--rows", "7", "--runs", str(runs), "--port", "0", "--device", "cpu"]
    done = CliRunner().invoke(main, ["serve", *arguments])
    assert done.exit_code == 2
    assert "rows must be at most 6 for a context of 512 tokens, but are 7: their cache needs up to" in done.stderr


def prose_config(runs):
    return saccade.load("prose", root=runs).task.config.model


def test_the_limit_of_open_files_is_raised_for_connections():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        limit = raise_file_limit()
        assert limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0] == (min(hard, 8192) if hard >= 0 else 8192)
        assert raise_file_limit() == limit
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
