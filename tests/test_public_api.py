"""`import saccade`: quick and without torch; the lines of the documentation run as a script and as a notebook cell,
and a type checker outside the package sees their types."""

import os
import shutil
import statistics
import subprocess
import sys
import time
import types
import venv
from pathlib import Path

import pytest
import torch

import saccade

ROOT = Path(__file__).parents[1]

SCRIPT = """
import saccade

class MyCallback(saccade.Callback):
    steps = 0

    def on_step(self, record, progress, total):
        self.steps += 1

callback = MyCallback()
run = saccade.train(
    "pairs.tsv",
    steps=20,
    model={"transformer": {"dim": 32, "depth": 1, "decoder_depth": 1, "heads": 4, "hidden": 64}},
    batch_tokens=400,
    callbacks=[callback],
)
run.metrics["bleu"], run.path
model = saccade.load(run)
out = model("four two one", beam=2)
out.text, out.scores
rows = out.attention["decoder.0.cross"].rows(0, 5, head=2)
outs = model(["one", "two three"])
for token in model.stream("one two"):
    print(token, end="")
print()
scores = model.evaluate("test.tsv")
effect = model.explain(out).ablate("decoder.0.cross", head=2)
resumed = saccade.resume("pairs-1")
"""

CHECKS = """
assert callback.steps == 20
assert run.metrics["bleu"] >= 0 and run.path.name == "pairs-1" and run.path.is_dir()
assert isinstance(out, saccade.ModelPrediction) and isinstance(out.text, str) and out.scores
assert rows.shape[0] == 1 and 0 < rows.shape[1] <= 5
assert len(outs) == 2
assert scores["bleu"] >= 0
assert resumed.metrics == run.metrics
"""

LANGUAGE_MODEL = """
import saccade
run = saccade.train("book.txt", steps=5, preset="gpt2-tiny", model={"depth": 1, "max_positions": 16})
model = saccade.load(run)
text = "".join(str(token) for token in model.stream("It was a", max_new_tokens=5))
assert text and isinstance(text, str)
notes = model.export("out/", format="hf")
assert notes
"""


def environment() -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def python(code: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Generated pairs, a test file and a text."""
    digits = ["one", "two", "three", "four", "five"]
    rows = [[digits[number * step % 5] for step in (1, 3, 7)] for number in range(200)]
    pairs = [f"{' '.join(row)} {number}\t{' '.join(reversed(row))} {number}\n" for number, row in enumerate(rows)]
    (tmp_path / "pairs.tsv").write_text("".join(pairs))
    (tmp_path / "test.tsv").write_text("".join(pairs[:20]))
    (tmp_path / "book.txt").write_text("It was a dark night, and it was a long one.\n" * 60)
    return tmp_path


def test_importing_is_quick() -> None:
    """Below 50 ms beside a bare interpreter; the median of several, again if the machine was busy."""

    def seconds(code: str) -> float:
        started = time.perf_counter()
        assert python(code).returncode == 0
        return time.perf_counter() - started

    taken = 0.0
    for _ in range(5):
        bare, ours = zip(*[(seconds("pass"), seconds("import saccade")) for _ in range(7)], strict=True)
        taken = statistics.median(ours) - statistics.median(bare)
        if taken < 0.05:
            return
    pytest.fail(f"import saccade took {1000 * taken:.0f} ms, expected less than 50 ms")


def test_importing_loads_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, saccade; sys.exit(bool({'torch', 'numpy', 'rich', 'pydantic', 'tokenizers'} & set(sys.modules)))"
    )
    assert python(code).returncode == 0


def test_every_public_name_is_there() -> None:
    for name in saccade.__all__:
        assert getattr(saccade, name) is not None
        assert name in dir(saccade)
    assert saccade.errors.UsageError.exit_code == 2
    with pytest.raises(AttributeError, match="module 'saccade' has no attribute 'trian'"):
        saccade.trian  # noqa: B018


def test_the_lines_of_the_documentation_run_as_a_script(folder: Path) -> None:
    done = python(SCRIPT + CHECKS, folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no terminal: no progress
    done = python(LANGUAGE_MODEL, folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "out" / "config.json").exists()


def test_the_lines_of_the_documentation_run_as_a_notebook_cell(folder: Path, monkeypatch) -> None:
    """In a notebook progress is shown in place, and runs and predictions render themselves."""
    shown = install_notebook(monkeypatch)
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    exec(compile(SCRIPT + CHECKS, "<cell>", "exec"), names)
    assert any("<progress" in page for page in shown)
    assert "step 20" in shown[-1] and "valid" in shown[-1]
    for name in ("run", "out", "model"):
        assert "<" in names[name]._repr_html_()
    assert "<svg" in names["run"]._repr_html_()
    assert "<iframe" in names["out"]._repr_html_()


def install_notebook(monkeypatch) -> list[str]:
    """Pretend to be a notebook kernel; the pages that were displayed."""
    pages: list[str] = []

    class Handle:
        def update(self, page: str) -> None:
            pages.append(page)

    shell = types.SimpleNamespace(kernel=object())
    package = types.ModuleType("IPython")
    display = types.ModuleType("IPython.display")
    monkeypatch.setattr(package, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setattr(display, "HTML", str, raising=False)
    monkeypatch.setattr(display, "display", lambda page, display_id: Handle(), raising=False)
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return pages


TYPED = """
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, assert_type

import saccade
from saccade.core import AttentionMap, GeneratedToken
from torch import Tensor


class MyCallback(saccade.Callback):
    def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        if progress > 0.5:
            raise saccade.StopTraining


run = saccade.train("pairs.tsv", minutes=10, model={"transformer": {"dim": 256}}, callbacks=[MyCallback()])
assert_type(run, saccade.Run)
assert_type(run.metrics["bleu"], float)
assert_type(run.path, Path)
model = saccade.load(run)
assert_type(model, saccade.Model)
out = model("Good morning.", beam=8)
assert_type(out, saccade.ModelPrediction)
assert_type(out.text, str)
assert_type(out.scores, Mapping[str, float])
assert_type(out.attention["decoder.1.cross"], AttentionMap)
assert_type(out.attention["decoder.1.cross"].rows(0, 5, head=2), Tensor)
assert_type(model(["Good morning.", "Good night."]), list[saccade.ModelPrediction])
assert_type(model.stream("It was a"), Iterator[GeneratedToken])
assert_type(model.evaluate("test.tsv"), saccade.Evaluation)
assert_type(model.evaluate("test.tsv")["bleu"], float)
assert_type(model.explain(out).ablate("decoder.1.cross", head=2).before[0].answer, str)
assert_type(model.export("out/", format="hf"), list[str])
assert_type(saccade.resume("pairs-1"), saccade.Run)
assert_type(saccade.list_runs(), list[dict[str, Any]])
saccade.compare("pairs.tsv")
saccade.load(3)  # E: not a ref
saccade.train()  # E: data is missing
saccade.trian("pairs.tsv")  # E: no such name
"""


def test_a_type_checker_outside_the_package_sees_the_types(tmp_path: Path) -> None:
    """With mypy strict and the package installed, so that py.typed counts; only lines marked `E:` are errors."""
    pytest.importorskip("mypy", reason="installed with the [test] extra")
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    shutil.copytree(ROOT / "saccade", site / "saccade", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    (tmp_path / "user.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--python-executable"]
    command += [str(tmp_path / "venv" / "bin" / "python"), "user.py"]
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(command, cwd=tmp_path, env=plain, capture_output=True, text=True, timeout=600)
    expected = [number for number, line in enumerate(TYPED.splitlines(), 1) if "# E:" in line]
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [int(line.split(":")[1]) for line in errors] == expected, done.stdout + done.stderr
