"""One test for each row of the lectures: its demonstration runs, and every one of its checks passes."""

import io
import json
import multiprocessing
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner
from rich.console import Console

import saccade.lectures as lectures
from saccade.cli import main
from saccade.errors import ResourceError
from saccade.lectures import _status, attention_layer, foundations, self_attention, transformer, uses
from saccade.lectures._page import page
from saccade.lectures._row import Demonstration, Row
from saccade.lectures._text import print_demonstration
from saccade.look import figure
from saccade.nn.attention import Attention
from tests.conftest import USER_CACHE
from tests.lectures import conftest

COUNT = 74
SLOW = 3.0  # seconds


def row_params():
    """Return every row by its number; those that train a model are slow."""
    return [
        pytest.param(row, id=row.id.lower(), marks=[pytest.mark.slow] if row.seconds > SLOW else [])
        for row in lectures.list_rows()
    ]


@pytest.mark.parametrize("row", row_params())
def test_a_row_is_shown(row, record_property, monkeypatch):
    if row.needs:
        monkeypatch.setenv("SACCADE_CACHE", str(USER_CACHE))  # a download is kept for the next session
    demonstration, record = lectures.run_row(row)
    if record.status == "not run":
        record_property("lecture row skipped", row.id)
        pytest.skip(record.reason)
    failed = [
        f"{check.statement}: {check.value}, not {check.expected}" for check in demonstration.checks if not check.passed
    ]
    assert demonstration.checks and not failed, "\n".join(failed)
    assert record.status == "shown"
    printed = io.StringIO()
    print_demonstration(demonstration, Console(width=100, file=printed))
    assert printed.getvalue().count(" ok ") >= len(demonstration.checks)
    html = page(row, demonstration)
    assert not re.search(r"(src|href)=.?https?:", html), "nothing is loaded from elsewhere"
    record_property("lecture row", row.id)


def test_rows_that_were_skipped_are_counted_and_named():
    def report(outcome, name, row):
        return SimpleNamespace(when="call", user_properties=[(name, row)], **{outcome: True})

    reports = [report("passed", conftest.PROPERTY, row) for row in ("R01", "R01", "R02")]
    assert conftest.summary(reports) == f"lectures: 2 of {COUNT} rows shown"
    reports += [report("skipped", conftest.SKIPPED, row) for row in ("R58", "R36")]
    message = f"lectures: 2 of {COUNT} rows shown, 2 skipped for want of a download or a package: R36, R58"
    assert conftest.summary(reports) == message


def test_all_rows_are_there_once_in_order():
    assert [row.id for row in lectures.list_rows()] == [f"R{number:02}" for number in range(1, COUNT + 1)]
    assert all(row.title and row.command == f"saccade lectures {row.id}" for row in lectures.list_rows())


def shown(name):
    return lectures.run_row(lectures.find_row(name))[1].status


# A check can fail: with a wrong implementation, the row is not shown.


def test_a_wrong_scale_is_noticed(monkeypatch):
    monkeypatch.setattr(attention_layer.Dot, "factor", lambda self, width: 1.0 if self.scale else 1 / width)
    assert shown("R21") == shown("R24") == shown("R25") == "failed"


def test_a_mask_that_looks_ahead_is_noticed(monkeypatch):
    monkeypatch.setattr(self_attention, "Causal", lambda: None)
    assert shown("R31") == "failed"


def test_a_missing_residual_is_noticed(monkeypatch):
    monkeypatch.setattr(foundations.Residual, "forward", lambda self, x, block: block(x))
    assert shown("R03") == "failed"


def test_a_layer_that_mixes_vectors_is_noticed(monkeypatch):
    forward = transformer.FeedForward.forward
    monkeypatch.setattr(transformer.FeedForward, "forward", lambda self, x: forward(self, x) + x.mean(1, keepdim=True))
    assert shown("R43") == "failed"


def test_an_attention_that_depends_on_the_position_is_noticed(monkeypatch):
    forward = Attention.forward
    monkeypatch.setattr(
        Attention,
        "forward",
        lambda self, x, *args, **options: forward(self, x, *args, **options) * torch.arange(1, x.shape[1] + 1)[:, None],
    )
    assert shown("R30") == "failed"


def test_a_projection_of_its_own_is_noticed(monkeypatch):
    monkeypatch.setattr(self_attention.Attention, "__init__", transposed(Attention.__init__))
    assert shown("R28") == "failed"


def transposed(init):
    def wrong(self, *args, **options):
        init(self, *args, **options)
        if hasattr(self, "kv"):
            self.kv.forward = lambda x: type(self.kv).forward(self.kv, x.flip(-1))

    return wrong


def test_another_attention_class_is_noticed(monkeypatch):
    class Other(Attention):
        pass

    monkeypatch.setattr("saccade.models.graph.transformer.Attention", Other)
    assert shown("R68") == "failed"


@pytest.mark.slow
def test_an_encoder_that_learns_nothing_is_noticed(monkeypatch):
    learn = uses._learn_to_copy
    monkeypatch.setattr(uses, "_learn_to_copy", lambda model: learn(model, steps=20))
    assert shown("R46") == "failed"


@pytest.mark.slow
def test_a_view_that_shows_another_head_is_noticed(monkeypatch):
    one_head = figure.one_head
    monkeypatch.setattr(figure, "one_head", lambda attention, head: one_head(attention, 0))
    assert shown("R74") == "failed"


@pytest.mark.parametrize(
    ("check", "passed"),
    [
        (lambda show: show.close("", float("nan"), 1.0, 10), False),
        (lambda show: show.close("", [1.0, 1.0], 1.0, 10), False),
        (lambda show: show.close("", 1.04, 1.0, 0.05), True),
        (lambda show: show.same("", torch.ones(2), torch.ones(1, 2)), False),
        (lambda show: show.same("", torch.ones(2), torch.tensor([1.0, float("nan")]), 1.0), False),
        (lambda show: show.below("", float("nan"), 1), False),
        (lambda show: show.above("", 2.0, 2.0), False),
        (lambda show: show.between("", 3, 1, 2), False),
        (lambda show: show.equal("", [1, 2], [1, 2]), True),
        (lambda show: show.raises("", ValueError, "6", lambda: Attention(512, 8)), False),
        (lambda show: show.raises("", ValueError, "multiple of 6", lambda: Attention(512, 6)), True),
    ],
)
def test_a_check_passes_only_if_it_holds(check, passed):
    show = Demonstration()
    check(show)
    assert show.passed is passed


def test_a_demonstration_without_checks_is_not_shown():
    assert lectures.run_row(Row("R00", "nothing", lambda show: show.note("nothing")))[1].status == "failed"


def test_a_row_without_its_model_or_package_is_not_run(monkeypatch):
    def missing(show):
        raise ResourceError("minilm cannot be downloaded")

    record = lectures.run_row(Row("R00", "a model", missing))[1]
    assert (record.status, record.reason) == ("not run", "minilm cannot be downloaded")
    monkeypatch.setitem(lectures.PACKAGES, "images", "no_such_package")
    record = lectures.run_row(Row("R00", "pictures", missing, extras=("images",)))[1]
    assert record.reason == "R00 needs no_such_package, which is not installed: pip install 'saccade[images]'"


def raising(error):
    def run(show):
        show.equal("one", 1, 1)
        raise error

    return Row("R01", "a demonstration that raises", run)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(KeyError("x"), "KeyError: 'x'"), (StopIteration(), "StopIteration: "), (OSError("f"), "OSError: f")],
)
def test_a_demonstration_that_raises_has_failed(error, reason):
    _status.write_record("R01", _status.Record("shown"))
    record = lectures.run_row(raising(error))[1]
    assert (record.status, record.reason) == ("failed", reason)
    assert _status.read_records()["R01"] == record


def write_many(name):
    for _ in range(20):
        _status.write_record(name, _status.Record("shown"))


def test_processes_that_write_at_once_lose_no_status(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    _status.version()  # once, before the processes are forked
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(f"R0{number}",)) for number in range(1, 5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert sorted(_status.read_records()) == ["R01", "R02", "R03", "R04"]


# The command


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    return lambda *arguments: CliRunner().invoke(main, ["lectures", *map(str, arguments)])


def test_the_list_has_every_row_with_its_command_and_status(call):
    assert call("R24").exit_code == 0
    result = call()
    assert result.stdout.count("saccade lectures R") == COUNT and result.stdout.count("not run") == COUNT - 1
    assert result.stderr.startswith(f"1 of {COUNT} rows shown (73 not run)")
    rows = json.loads(call("--json").stdout)
    assert [row["id"] for row in rows if row["status"] == "shown"] == ["R24"]


def test_a_status_is_of_this_version_only(call, monkeypatch):
    call("R24")
    assert _status.read_records()["R24"].status == "shown"
    monkeypatch.setattr(_status, "version", lambda: "another")
    assert _status.read_records() == {}


def test_a_row_prints_its_numbers_and_checks(call, tmp_path):
    result = call("r24", "--out", tmp_path / "r24.html")
    assert result.exit_code == 0 and "0.8808" in result.stdout and "5 of 5 checks passed" in result.stdout
    assert "\x1b[" not in result.stdout
    assert "0.8808" in (tmp_path / "r24.html").read_text()
    computed = json.loads(call("R24", "--json").stdout)
    assert computed["status"] == "shown" and all(check["passed"] for check in computed["checks"])


def test_a_failed_row_ends_with_exit_code_1(call, monkeypatch):
    monkeypatch.setattr(attention_layer.Dot, "factor", lambda self, width: 1.0)
    result = call("R24")
    assert result.exit_code == 1 and "FAILED" in result.stdout
    assert "R24" in call().stdout and _status.read_records()["R24"].status == "failed"


def test_all_rows_are_run_and_counted(call, monkeypatch):
    monkeypatch.setattr(lectures, "list_rows", lambda: lectures_of("R01", "R24"))
    result = call("--all")
    assert (result.exit_code, result.stdout) == (0, "2 of 2 rows shown\n")
    assert "R01 shown" in result.stderr


def test_a_row_that_raises_stops_no_other(call, monkeypatch):
    rows = (raising(KeyError("x")), *lectures_of("R24"))
    monkeypatch.setattr(lectures, "list_rows", lambda: rows)
    result = call("--all")
    assert (result.exit_code, result.stdout) == (1, "1 of 2 rows shown (1 failed)\n")
    assert "KeyError: 'x'" in result.stderr and "R24 shown" in result.stderr
    result = call("R01")
    assert result.exit_code == 1
    assert re.search(r"failed: 1 of 1 checks passed in [\d.]+ s; KeyError: 'x'", result.stdout)


def lectures_of(*names):
    from saccade.lectures import attention_layer as layer

    found = {row.id: row for row in (*foundations.ROWS, *layer.ROWS)}
    return tuple(found[name] for name in names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["R99"], "no row 'R99'"),
        (["R24", "--all"], "--all runs every row, but 'R24' names one of them"),
        (["--out", "x.html"], "--out and --open need the name of a row, such as R24"),
        (["R24", "--out", "x.png"], "--out must end on .html, but is 'x.png'"),
    ],
)
def test_mistakes_are_named(call, arguments, message):
    result = call(*arguments)
    assert result.exit_code == 2 and message in result.stderr


def test_open_without_a_terminal_asks_nothing(call):
    result = call("R01", "--open")
    assert result.exit_code == 0 and re.search(r"the page is .*R01\.html", result.stderr)


def test_the_documentation_lists_the_rows():
    text = (Path(__file__).parents[2] / "docs" / "lectures.md").read_text(encoding="utf-8")
    for row in lectures.list_rows():
        assert f"| {row.id} | {row.title} | `{row.command}` |" in text
