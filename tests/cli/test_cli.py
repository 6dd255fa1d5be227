"""The command line: exit codes, messages with their values, data alone on stdout, and a quick --help."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from saccade.cli import main

ROOT = Path(__file__).parents[2]
TINY = ["model.dim=16", "model.depth=1", "model.heads=2", "model.hidden=32", "model.max_positions=16", "batch_size=4"]
TINY += ["train.device=cpu", "train.evaluate_every=4"]
COMMANDS = sorted(main.commands)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a text and a trained run `done`."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "book.txt").write_text("".join(f"line {number * 37 % 101} says so\n" for number in range(200)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        result = call("train", "book.txt", "--name", "done", "--steps", "8", "--json", *TINY)
        assert result.exit_code == 0, result.stderr
        yield folder


def call(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def process(workspace: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-m", "saccade", *arguments],
        cwd=workspace,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "none.txt"], 3, r"none\.txt"),
        (["predict", "done", "x", "--checkpoint", "3"], 2, r"a step that was kept \(4, 8\), but is 3"),
        (["predict", "done", "x", "--checkpoint", "newest"], 2, r"'newest' is not one of 'best', 'last', 'mean'"),
        (["train", "book.txt", "model.dmi=64"], 2, r"no setting 'model\.dmi'; did you mean 'model\.dim'\?"),
        (["train", "book.txt", "train.stepz=6"], 2, r"no setting 'train\.stepz'; did you mean 'train\.steps'\?"),
        (["train", "book.txt", "model.dim=wide"], 2, r"model\.dim must be a whole number, but is 'wide'"),
        (["train", "book.txt", "model.dim=33"], 2, r"model\.dim must be a multiple of heads, but 33 is not"),
        (["train", "book.txt", "train.optim.kind=adam"], 2, r"train\.optim\.kind must be .*, but is 'adam'"),
        (["train", "book.txt", "model.heads=0"], 2, r"model\.heads must be at least 1, but is 0"),
        (["train", "book.txt", "model.dropout=2"], 2, r"model\.dropout must be at least 0 and below 1, but is 2\.0"),
        (["train", "book.txt", "micro_batches=0"], 2, r"micro_batches must be at least 1, but is 0"),
        (["train", "book.txt", "batch_size=-4"], 2, r"batch_size must be at least 1, but is -4"),
        (["train", "book.txt", "wide"], 2, r"a setting must be written name=value, but is 'wide'"),
        (
            ["train", "book.txt", "--task", "languag_model"],
            2,
            r"no task 'languag_model'; did you mean 'language_model'\?",
        ),
        (["train", "book.txt", "--task", "no.such"], 2, r"no task 'no\.such'"),
        (["train", "book.txt", "--preset", "smal"], 2, r"no preset 'smal'; did you mean 'small'\?"),
        (["train", "book.txt", "--name", "done"], 2, r"run 'done' exists in runs; continue it with `saccade resume"),
        (["train", "book.txt", "--name", "a/b"], 2, r"a run name must be .*, but is 'a/b'"),
        (
            ["train", "book.txt", "--steps", "3", "--minutes", "2"],
            2,
            r"train\.steps, minutes .* but are 3, 2\.0 and 0\.0",
        ),
        (["train", "book.txt", "--steps", "0"], 2, r"--steps.*0 is not in the range x>=1"),
        (["train", "book.txt", "--device", "gpu", "--steps", "2"], 2, r"device must be auto, .* but is 'gpu'"),
        (["train", "book.txt", "model.max_positions=9999", "--steps", "2"], 3, r"at least 10001 tokens .* but has \d+"),
        (["train", "book.txt", "--encoding", "utf-99"], 2, r"utf-99"),
        (["resume", "dne"], 2, r"no run 'dne' in runs; did you mean 'done'\?"),
        (["evaluate", "dne"], 2, r"no run 'dne' in runs; did you mean 'done'\?"),
        (["evaluate", "done", "--data", "none.txt"], 3, r"none\.txt"),
        (["predict", "done", "--runs", "elsewhere"], 2, r"no run 'done' in elsewhere; train one first"),
        (
            ["predict", "done", "line", "-o", "temprature=1"],
            2,
            r"no option 'temprature'; did you mean 'temperature'\?",
        ),
        (["predict", "done", "line", "-o", "top_p=2"], 2, r"top_p must be above 0 and at most 1, but is 2"),
        (["predict", "done", "line", "-o", "hot"], 2, r"an option .* but is 'hot'; for example temperature=0\.8"),
        (["predict", "done", "line", "--file", "book.txt"], 2, r"--file cannot be combined with INPUT arguments"),
        (["predict", "done", "--file", "/dev/null"], 3, r"/dev/null is empty, expected one example per line"),
        (["look", "done", "--seed", "-1"], 2, r"--seed.*-1 is not in the range x>=0"),
        (["look", "done", "line", "--out", "no/x.svg"], 5, r"cannot write no/x\.svg: No such file .*; choose another"),
        (
            ["train", "book.txt", "--runs", "book.txt"],
            5,
            r"run folder book\.txt/book-1: Not a directory; choose another",
        ),
        (
            ["train", "book.txt", "--from", "x"],
            2,
            r"task 'language_model', chosen by the data, .*--from x; .*tagging",
        ),
        (["predict", "done", "line", "temperature=0"], 2, r"2 inputs were given, expected at most 1; .* takes prompt"),
        (["predict", "done"], 2, r"prompt must be given, but is not; this model takes prompt"),
        (["predict", "done", "line €"], 3, r"character 6 of the text is '€' \(U\+20AC\)"),
        (["predict", "done", "--file", "none.txt"], 2, r"none\.txt"),
        (["tasks", "nope"], 2, r"no task 'nope'; available: .*language_model"),
        (["completion", "csh"], 2, r"'csh' is not one of"),
        (["tran"], 2, r"No such command 'tran'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes_end_with_their_code_and_one_message(
    workspace: Path, arguments: list[str], code: int, message: str
) -> None:
    before = sorted(path.name for path in (workspace / "runs").iterdir())
    result = call(*arguments)
    assert result.exit_code == code, result.output
    assert re.search(message, result.stderr), result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert sorted(path.name for path in (workspace / "runs").iterdir()) == before  # no incomplete run


def test_stdout_is_json_only(workspace: Path) -> None:
    for arguments in (["evaluate", "done"], ["runs"], ["tasks"], ["tasks", "language_model"], ["resume", "done"]):
        result = call(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        assert result.stdout.count("\n") == 1
        assert json.loads(result.stdout)


def test_training_prints_metrics_to_stdout_and_messages_to_stderr(workspace: Path) -> None:
    result = call("train", "book.txt", "--name", "plain", "--steps", "4", *TINY)
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.stdout.splitlines()]
    assert names == ["loss", "perplexity", "bits_per_byte", "tokens"]
    for expected in (
        "book.txt",
        "vocabulary: ",
        "tokens: ",
        "device: cpu",
        "step 4  valid loss",
        "run runs/plain; best checkpoint on all validation data:",
    ):
        assert expected in result.stderr


def test_quiet_prints_only_the_result(workspace: Path) -> None:
    result = call("train", "book.txt", "--name", "hush", "--steps", "2", "--quiet", "--json", *TINY)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert json.loads(result.stdout)["run"] == "runs/hush"


def test_a_run_is_named_after_its_file(workspace: Path) -> None:
    names = [
        json.loads(call("train", "book.txt", "--steps", "1", "--quiet", "--json", *TINY).stdout)["run"]
        for _ in range(2)
    ]
    assert names == ["runs/book-1", "runs/book-2"]


def test_shortcuts_set_their_settings(workspace: Path) -> None:
    arguments = ["--seed", "7", "--steps", "1", "--name", "short", "--quiet"]
    assert call("train", "book.txt", *arguments, *TINY).exit_code == 0
    described = json.loads((workspace / "runs" / "short" / "run.json").read_text())
    assert (described["train"]["seed"], described["train"]["steps"]) == (7, 1)
    assert described["config"]["model"]["dim"] == 16


def test_evaluating_gives_the_scores_of_training(workspace: Path) -> None:
    trained, scored = (json.loads(call(name, "done", "--json").stdout) for name in ("resume", "evaluate"))
    assert {name: trained[name] for name in scored} == scored
    assert scored["loss"] > 0


def test_resuming_a_finished_run_changes_nothing(workspace: Path) -> None:
    folder = workspace / "runs" / "done"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "run.lock"}
    result = call("resume", "done")
    assert result.exit_code == 0
    assert "resuming after step 8" in result.stderr
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "run.lock"}
    assert after == before


def test_runs_are_listed(workspace: Path) -> None:
    actual = {run["name"]: run for run in json.loads(call("runs", "--json").stdout)}
    assert (actual["done"]["step"], actual["done"]["task"], actual["done"]["running"]) == (8, "language_model", False)
    assert actual["done"]["best"] > 0
    assert re.search(r"^done +language_model +step 8 +best \d", call("runs").stdout, re.MULTILINE)
    empty = call("runs", "--runs", "elsewhere")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "no runs in elsewhere; train one with `saccade train FILE`" in empty.stderr


def test_tasks_show_every_setting_with_its_help(workspace: Path) -> None:
    shown = call("tasks", "language_model").stdout
    described = json.loads(call("tasks", "language_model", "--json").stdout)
    for row in [*described["settings"], *described["options"]]:
        assert row["help"]
        default = row["default"] if isinstance(row["default"], str) else json.dumps(row["default"])
        assert f"{row['name']}={default}" in shown
    assert "train.optim.kind" in shown
    assert "language_model" in call("tasks").stdout


def test_predicting_from_an_argument_stdin_and_a_file(workspace: Path) -> None:
    options = ["-o", "max_new_tokens=10", "-o", "temperature=0"]
    (workspace / "prompts.txt").write_text("line 3\nline\n")
    one = json.loads(call("predict", "done", "line 3", *options, "--json").stdout)
    assert one["inputs"] == {"prompt": "line 3"}
    assert one["output"]["kind"] == "text" and len(one["output"]["text"]) == 10
    assert one["scores"]["tokens"] == 10.0
    for result in (
        call("predict", "done", *options, "--file", "-", "--json", stdin="line 3\nline\n"),
        call("predict", "done", *options, "--file", "prompts.txt", "--json"),
    ):
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        assert [row["inputs"]["prompt"] for row in rows] == ["line 3", "line"]
        assert rows[0]["output"] == one["output"]
    assert call("predict", "done", "line 3", *options).stdout == f"line 3{one['output']['text']}\n"
    lines = call("predict", "done", *options, "--file", "prompts.txt").stdout
    assert lines.startswith(f"line 3{one['output']['text']}\nline")


@pytest.mark.parametrize("text", ["max_new_tokens=5 so", "temperature=0", "prompt=says", "length=5 says"])
def test_an_input_is_never_read_as_an_option(workspace: Path, text: str) -> None:
    """A text that looks like key=value is a text: options are given by -o alone."""
    pool = "".join(f"{name}={number} says so\n" for name in ("length", "prompt") for number in range(60))
    if not (workspace / "runs" / "keys").exists():
        (workspace / "keys.txt").write_text(pool + "max_new_tokens temperature\n" * 40)
        trained = call("train", "keys.txt", "--name", "keys", "--steps", "1", "--quiet", *TINY)
        assert trained.exit_code == 0, trained.stderr
    result = call("predict", "keys", text, "-o", "max_new_tokens=3", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["inputs"] == {"prompt": text}
    assert json.loads(result.stdout)["scores"]["tokens"] == 3.0


def test_a_file_is_predicted_in_batches(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from saccade.tasks import language_model

    sizes = []
    predict = language_model.Task.predict

    def counted(self, inputs, options):  # type: ignore[no-untyped-def]
        sizes.append(len(inputs))
        return predict(self, inputs, options)

    monkeypatch.setattr(language_model.Task, "predict", counted)
    result = call("predict", "done", "-o", "max_new_tokens=1", "--file", "-", stdin="line\n" * 300)
    assert result.stdout.count("\n") >= 300
    assert sizes == [256, 44]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_examples(name: str) -> None:
    result = call(name, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert re.search(rf"^ +(eval \"\$\()?saccade {name}", result.stdout, re.MULTILINE)
    command = main.commands[name]
    assert all(option.help for option in command.params if isinstance(option, click.Option))


def test_the_help_names_commands_and_exit_codes() -> None:
    shown = call("--help").stdout
    assert all(re.search(rf"^  {name}  +\w", shown, re.MULTILINE) for name in COMMANDS)
    assert "Exit codes: 0 ok, 1 failure, 2 usage, 3 bad data, 4 bad" in " ".join(shown.split())
    assert call("-h").stdout == shown


def test_help_does_not_load_torch(workspace: Path) -> None:
    code = (
        "import sys; from saccade.cli import main; main(['--help'], standalone_mode=False); "
        "sys.exit(bool({'torch', 'numpy', 'rich', 'tokenizers', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_help_is_quick(workspace: Path) -> None:
    taken = []
    for _ in range(5):  # the quickest counts: the machine may be busy
        began = time.perf_counter()
        assert process(workspace, "--help").returncode == 0
        taken.append(time.perf_counter() - began)
        if min(taken) < 0.3:
            return
    pytest.fail(f"saccade --help took {min(taken):.2f} s at best, expected less than 0.3 s")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    result = call("completion", shell)
    assert result.exit_code == 0
    assert "_SACCADE_COMPLETE" in result.stdout
    assert f"{shell}_complete" in result.stdout


def test_a_process_prints_data_to_stdout_and_messages_to_stderr(workspace: Path) -> None:
    arguments = ["train", "book.txt", "--name", "real", "--steps", "2", "--json", *TINY]
    done = process(workspace, *arguments, NO_COLOR="1")  # nobody at a terminal: it asks nothing
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"] == "runs/real"
    assert "valid loss" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_a_real_process_ends_with_the_code_of_its_error(workspace: Path) -> None:
    done = process(workspace, "resume", "nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("saccade: no run 'nobody' in runs")
    assert done.stderr.count("\n") == 1


def test_no_colour_at_a_terminal_that_wants_none(workspace: Path) -> None:
    """A bar still moves the cursor, but nothing is coloured."""
    ours, theirs = pty.openpty()
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths, "NO_COLOR": "1", "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
    arguments = ["train", "book.txt", "--name", "terminal", "--steps", "2", *TINY]
    running = subprocess.Popen(
        [sys.executable, "-m", "saccade", *arguments],
        cwd=workspace,
        env=environment,
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how Linux says that the other side has closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert running.wait(timeout=60) == 0, shown
    assert b"valid loss" in shown
    codes = {int(code) for escape in re.findall(rb"\x1b\[([\d;]*)m", shown) for code in escape.split(b";") if code}
    assert not codes & {*range(30, 50), *range(90, 108)}


def test_a_damaged_run_is_named(workspace: Path) -> None:
    folder = workspace / "damaged" / "bad"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{")
    result = call("predict", "bad", "x", "--runs", "damaged")
    assert result.exit_code == 4
    assert "run.json is damaged" in result.stderr


def test_a_run_without_a_checkpoint_names_the_next_step(workspace: Path) -> None:
    source, folder = workspace / "runs" / "done", workspace / "young" / "new"
    folder.mkdir(parents=True)
    (folder / "run.json").write_bytes((source / "run.json").read_bytes())
    (folder / "assets").mkdir()
    (folder / "assets" / "tokenizer.json").write_bytes((source / "assets" / "tokenizer.json").read_bytes())
    result = call("predict", "new", "line", "--runs", "young")
    assert result.exit_code == 4
    assert "run 'new' has no checkpoint yet; train it with `saccade resume young/new`" in result.stderr


def test_a_run_killed_while_preparing_is_completed_by_resume(workspace: Path) -> None:
    source, folder = workspace / "runs" / "done", workspace / "killed" / "early"
    (folder / "assets.tmp").mkdir(parents=True)
    (folder / "assets.tmp" / "tokenizer.json").write_text("{")
    (folder / "run.json").write_bytes((source / "run.json").read_bytes())
    result = call("resume", "early", "--runs", "killed", "--json")
    assert result.exit_code == 0, result.stderr
    model = "checkpoints/step-000008/model.safetensors"
    assert (folder / model).read_bytes() == (source / model).read_bytes()


def test_a_studio_names_what_it_cannot_find(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root, message in (
        (tmp_path, "no run or model 'nowhere'; name a run of"),
        (tmp_path / "file", "must be a folder"),
    ):
        arguments = [sys.executable, "-m", "saccade", "studio", "nowhere", "--no-browser", "--runs", str(root)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2
        assert message in done.stderr
