"""The report has a row for every long form: a figure that was printed, a failure, or 'not run'; never anything else."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import report


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PAGE", tmp_path / "reliability.md")
    return tmp_path / "reliability.md"


def script(folder, monkeypatch, text):
    """Make the long form `signals` a script of a few lines."""
    (folder / "signals.py").write_text(text)
    monkeypatch.setattr(report, "__file__", str(folder / "report.py"))


def test_what_did_not_run_is_said_and_what_ran_is_kept(page, tmp_path, monkeypatch):
    script(tmp_path, monkeypatch, "import sys; print('noise'); print('signals: 3/3 signals', *sys.argv[1:])")
    result = report.run(report.TESTS["signals"])
    assert result.figure == "3/3 signals --count 100"
    report.write_page({"signals": result})
    assert report.read_page()["signals"] == result
    assert report.read_page()["kill"] == report.Result("not run", "-")
    assert page.read_text().count("| not run | - | - |") == len(report.TESTS) - 1
    report.write_page({**report.read_page(), "kill": report.Result("9/9 kills", "1.0 min")})
    assert report.read_page()["signals"] == result


def test_a_failure_is_shown_as_one(page, tmp_path, monkeypatch, capsys):
    script(tmp_path, monkeypatch, "print('signals: 2/3 signals'); raise SystemExit(1)")
    monkeypatch.setattr(sys, "argv", ["report.py", "signals"])
    assert report.main() == 1
    assert "| `signals` | **failed**: 2/3 signals |" in page.read_text()
    script(tmp_path, monkeypatch, "raise SystemExit(1)")
    assert report.run(report.TESTS["signals"]).figure == "**failed**: no figure, exit code 1"


def test_the_commit_that_was_measured_is_recorded(page, tmp_path, monkeypatch):
    code = tmp_path / "code"
    (code / "docs").mkdir(parents=True)
    monkeypatch.setattr(report, "ROOT", code)
    assert report.commit() == "-"  # a copy without git

    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "core.hooksPath=/dev/null")
        return subprocess.run(
            ["git", *identity, *arguments], cwd=code, check=True, capture_output=True, text=True
        ).stdout

    for name in ("a.py", "docs/reliability.md"):
        (code / name).write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "a")
    name = f"`{git('rev-parse', '--short', 'HEAD').strip()}`"
    (code / "docs/reliability.md").write_text("2")  # the page itself does not count
    assert report.commit() == name
    (code / "a.py").write_text("2")
    assert report.commit() == f"{name}+"
    script(tmp_path, monkeypatch, "print('signals: 3/3 signals')")
    result = report.run(report.TESTS["signals"])
    report.write_page({"signals": result})
    assert report.read_page()["signals"].commit == f"{name}+" and f"min | {name}+ | `signals.py" in page.read_text()


def test_the_figure_of_another_command_is_not_kept(page, monkeypatch):
    report.write_page({"signals": report.Result("5/5 signals", "1.0 min")})
    page.write_text(page.read_text().replace("signals.py --count 100", "signals.py --count 5"))
    assert "signals" not in report.read_page()


def test_every_long_form_is_a_script_with_its_option():
    for test in report.TESTS.values():
        name, *options = test.command.split()
        source = (Path(report.__file__).parent / name).read_text()
        assert all(f'"{option}"' in source for option in options if option.startswith("--")), test


def test_an_unknown_test_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["report.py", "sinals"])
    with pytest.raises(SystemExit):
        report.main()
    assert "no test sinals; there are hostile-models" in capsys.readouterr().err
