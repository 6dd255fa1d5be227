"""`saccade chat`: a pretrained folder and a run of our own, through a pipe and at a terminal."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from saccade.cli import main
from saccade.data.text.tokenizer_training import train_tokenizer
from tests.data.chat_template_texts import TEMPLATES

ROOT = Path(__file__).parents[2]
TINY = ["model.dim=16", "model.depth=1", "model.heads=2", "model.hidden=32", "model.max_positions=64", "batch_size=4"]
TINY += ["train.device=cpu", "train.evaluate_every=4"]
SPECIALS = ("<|im_start|>", "<|im_end|>")


def write_folder(folder: Path, template: str, positions: int = 128) -> Path:
    """A random Llama of transformers with a chat template, which never ends a text by itself."""
    transformers = pytest.importorskip("transformers", reason="writes the folder; installed with the [test] extra")
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=300,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=positions,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=None,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    train_tokenizer("bpe", ["user assistant system hello"], 270, SPECIALS).save(folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(template)
    return folder


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory):
    """A folder with a pretrained model `llama`, a run trained on chats and one trained on a text."""
    folder = tmp_path_factory.mktemp("chat")
    (folder / "book.txt").write_text("".join(f"line {number * 37 % 101} says so\n" for number in range(200)))
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Is {n} odd?"},
                {"role": "assistant", "content": "yes" if n % 2 else "no"},
            ]
        }
        for n in range(80)
    ]
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_folder(folder / "llama", TEMPLATES["ChatML"])
    write_folder(folder / "long", TEMPLATES["ChatML"], 65536)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        for data in ("book.txt", "chats.jsonl"):
            result = call("train", data, "--name", data.split(".")[0], "--steps", "4", *TINY)
            assert result.exit_code == 0, result.stderr
        yield folder


def call(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def test_each_line_of_a_pipe_is_answered_on_stdout(workspace):
    result = call("chat", "./llama", "-o", "max_new_tokens=8", "-o", "temperature=0", stdin="Hello\n\nAnd?\n")
    assert result.exit_code == 0, result.stderr
    records = call("chat", "./llama", "-o", "max_new_tokens=8", "-o", "temperature=0", "--json", stdin="Hello\nAnd?\n")
    answers = [json.loads(line) for line in records.stdout.splitlines()]
    assert result.stdout == "".join(f"{answer['answer']}\n" for answer in answers)
    assert [answer["message"] for answer in answers] == ["Hello", "And?"]
    assert answers[1]["context"]["used"] > answers[0]["context"]["used"]
    assert answers[0]["tokens"] == 8 and answers[0]["finish"] == "length" and answers[0]["context"]["size"] == 128
    assert result.stderr == "(ended early: max_new_tokens=8)\n" * 2  # and no prompt


def test_the_same_seed_gives_the_same_answers_and_a_retry_another(workspace):
    lines = "Hello\n/retry\n"
    first, second = (call("chat", "./llama", "-o", "max_new_tokens=8", "--json", stdin=lines) for _ in range(2))
    assert first.stdout == second.stdout
    answers = [json.loads(line)["answer"] for line in first.stdout.splitlines()]
    assert answers[0] != answers[1]


def test_the_oldest_turns_are_dropped_with_a_message(workspace):
    lines = "".join(f"Hello number {number}\n" for number in range(6))
    result = call("chat", "./llama", "-o", "max_new_tokens=8", "--json", stdin=lines)
    dropped = [json.loads(line)["context"]["dropped_turns"] for line in result.stdout.splitlines()]
    assert dropped == sorted(dropped) and dropped[-1] > 0
    assert f"(context full: the model no longer sees the {dropped[-1]} oldest turns of 6)" in result.stderr
    assert result.exit_code == 0


def test_a_run_that_was_trained_on_chats_chats(workspace):
    lines = "Is 3 odd?\n/save talk.jsonl\n"
    result = call("chat", "chats", "--system", "Is no odd?", "-o", "max_new_tokens=5", stdin=lines)
    assert result.exit_code == 0 and "saved talk.jsonl" in result.stderr, result.stderr
    saved = json.loads((workspace / "talk.jsonl").read_text())["messages"]
    assert [message["role"] for message in saved] == ["system", "user", "assistant"]
    more = call("chat", "chats", "--load", "talk.jsonl", "-o", "max_new_tokens=5", "--json", stdin="Is 4 odd?\n")
    assert "loaded talk.jsonl: 1 turn\n" in more.stderr and len(more.stdout.splitlines()) == 1
    lines = [json.dumps({"messages": [*saved[:-1], {"role": "assistant", "content": f"no {n}"}]}) for n in range(200)]
    (workspace / "many.jsonl").write_text("\n".join([json.dumps({"messages": saved}), *lines]))
    result = call("train", "many.jsonl", "--steps", "2", "--name", "again", *TINY)
    assert result.exit_code == 0 and "chats: 201 conversations (key messages) in ChatML" in result.stderr, result.stderr
    wrong = call("chat", "chats", stdin="Héllo\n")
    assert (
        wrong.exit_code == 3 and "<stdin>:1: character 6 of the text is 'H' (U+0048), expected one seen" in wrong.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "message"),
    [
        (
            ["book"],
            "",
            2,
            "needs a model with a chat template, but this one has none; continue a text with `saccade predict`",
        ),
        (["none"], "", 2, "none"),
        (["./llama", "-o", "temprature=1"], "", 2, "no setting 'temprature'; did you mean 'temperature'?"),
        (["./llama", "-o", "temperature=-1"], "", 2, "temperature must be 0 or more, but is -1"),
        (["./llama", "--load", "none.jsonl"], "", 3, "none.jsonl cannot be read"),
        (["./llama"], "Hello\n/retri\n", 2, "<stdin>:2: no command '/retri'; did you mean '/retry'?"),
        (["./llama"], "x " * 300 + "\n", 2, "must have fewer tokens than the context of 128, but has"),
        (["./llama", "-o", "max_new_tokens=2"], "/load none\n", 3, "<stdin>:1: none cannot be read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_has_one_message_and_an_exit_code(arguments, stdin, code, message, workspace):
    result = call("chat", *arguments, stdin=stdin)
    assert result.exit_code == code, result.stderr
    assert message in result.stderr and "Traceback" not in result.stderr


def test_bytes_that_are_no_text_are_named_with_their_line(workspace):
    result = CliRunner().invoke(main, ["chat", "./llama", "-o", "max_new_tokens=2"], input=b"Hello\na\xffb\n")
    assert result.exit_code == 3 and "<stdin>:2:2: byte 0xFF, expected UTF-8" in result.stderr


def test_a_hostile_template_is_refused_before_the_first_message(workspace, tmp_path):
    folder = write_folder(tmp_path / "evil", "{{ 'a' * 10 ** 9 }}")
    result = call("chat", folder, stdin="Hello\n")
    assert result.exit_code == 4 and "it needs more than 512 MB of memory" in result.stderr
    refuses = write_folder(tmp_path / "gemma", TEMPLATES["Gemma"])
    result = call("chat", refuses, "--system", "Be kind.", stdin="Hello\n")
    assert result.exit_code == 2 and "does not accept the conversation: System role not supported" in result.stderr


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.master, child = pty.openpty()
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        values = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "TERM": "dumb", **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "saccade", *arguments],
            **{"cwd": folder, "env": values, "stdin": child, "stdout": child, "stderr": child},
            start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
        )
        os.close(child)
        self.output, self.position = "", 0

    def wait_for(self, text: str, seconds: float = 180) -> str:
        """Read until a text appears, and return what was read."""
        start = self.position
        self._read(lambda: text in self.output[start:], seconds)
        self.position = self.output.index(text, start) + len(text)
        return self.output[start : self.position]

    def wait_for_text(self) -> None:
        """Read until anything but space follows what was read."""
        self._read(lambda: self.output[self.position :].strip() != "", 180)

    def _read(self, enough: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not enough():
            assert time.monotonic() < deadline, (self.process.kill(), self.output)
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    data = os.read(self.master, 4096)
                except OSError:  # the other end was closed
                    data = b""
                assert data, (self.process.kill(), self.output)
                self.output += data.decode("utf-8", "replace")

    def send(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> int:
        """Wait until the command ends, and return its exit code."""
        deadline = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.output += os.read(self.master, 4096).decode("utf-8", "replace")
                except OSError:
                    break
        code = self.process.wait(timeout=10)
        os.close(self.master)
        return code


def test_at_a_terminal_ctrl_c_ends_the_answer_and_ctrl_d_the_chat(workspace):
    terminal = Terminal(workspace, "chat", "./long", "-o", "max_new_tokens=60000")
    assert "context of 65,536 tokens; /help lists the commands" in terminal.wait_for("> ")
    terminal.send("Hello\n")
    terminal.wait_for("Hello\r\n")
    terminal.wait_for_text()
    terminal.send("\x03")
    terminal.wait_for("(interrupted)")
    assert "of 65,536 tokens" in terminal.wait_for("> ")
    terminal.send("/save cut.jsonl\n")
    terminal.wait_for("saved cut.jsonl")
    question, answer = json.loads((workspace / "cut.jsonl").read_text())["messages"]
    assert question["content"] == "Hello" and answer["role"] == "assistant" and answer["content"]
    terminal.wait_for("> ")
    terminal.send("half a line\x03")
    terminal.wait_for("(Ctrl-D or /exit leaves)")
    terminal.wait_for("> ")
    terminal.send("/undoo\n")
    terminal.wait_for("no command '/undoo'; did you mean '/undo'?")
    terminal.wait_for("> ")
    terminal.send("\x04")
    assert terminal.end() == 0
    assert "Traceback" not in terminal.output


def test_colours_are_for_terminals_without_no_color(workspace):
    for value, coloured in ({}, True), ({"NO_COLOR": "1"}, False):
        terminal = Terminal(workspace, "chat", "./llama", **value)
        terminal.wait_for("> ")
        terminal.send("/exit\n")
        assert terminal.end() == 0
        assert ("\x1b[2m" in terminal.output) is coloured


def test_ctrl_c_in_a_pipe_ends_the_program(workspace):
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "saccade", "chat", "./long", "-o", "max_new_tokens=60000"],
        **{"cwd": workspace, "env": {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}},
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True},
    )
    process.stdin.write("Hello\n")
    process.stdin.flush()
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and "interrupted" in errors


def test_smollm2_chats(get_model):
    get_model("smollm2")
    result = call("chat", "smollm2", "-o", "temperature=0", "-o", "max_new_tokens=30", "--json", stdin="What is 1+1?\n")
    record = json.loads(result.stdout)
    assert record["finish"] == "stop" and "2" in record["answer"] and "<|im_end|>" not in record["answer"]
