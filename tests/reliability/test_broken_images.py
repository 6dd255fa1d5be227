"""Every broken picture and table of pictures is named with the reason: by the reading functions, and by the command."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from saccade.tasks import task_names

SCRIPT = Path(__file__).with_name("broken_images.py")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("broken_images", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["broken_images"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_there_are_many_different_cases(script: ModuleType) -> None:
    cases = script.every_case()
    assert len(cases) >= 40
    assert len({case.name for case in cases}) == len(cases)


def test_readers_name_everything_within_a_gigabyte() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--reader"], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_command_names_everything(script: ModuleType) -> None:
    missing = script.ROLES.keys() - set(task_names())
    if missing:
        pytest.skip(f"no task {', '.join(sorted(missing))}")
    _, _, failures = script.check_all(script.run_command, script.SUBPROCESSES)
    assert not failures, "\n".join(failures)


def test_a_good_folder_is_not_called_broken(script: ModuleType, tmp_path: Path) -> None:
    """The check itself must be able to fail: good pictures are read, and a wrong file is noticed."""
    good = script.Broken("good", script.good(), "cats/1.png", "anything")
    outcome = script.run_reader(good, good.write(tmp_path), tmp_path)
    assert outcome == (0, "")
    assert script.failure(good, tmp_path, outcome).startswith("exit code 0, expected 3")
    output = (3, f"error: {tmp_path / 'cats/11.png'}: anything")
    assert script.failure(good, tmp_path, output).startswith("no 'cats/1.png' in")
