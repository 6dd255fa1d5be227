"""Every kind of run, every imported family and models of transformers hold every invariant."""

import pytest

import saccade
from tests.tasks.battery import NAMES

pytest.importorskip("transformers", reason="writes the checkpoints; installed with the [test] extra")

from tests.checks import families, foreign


def assert_green(report: saccade.CheckReport, least: int) -> None:
    """Nothing failed and nothing is doubtful, and enough was checked."""
    assert [result for result in report.results if result.status in ("failed", "warning")] == [], str(report)
    assert sum(result.status == "passed" for result in report.results) >= least, str(report)
    assert all(result.message for result in report.results)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_every_task_is_green(name, tiny_run):
    assert_green(saccade.check(tiny_run(name), task=name if "." in name else ""), 5 if "toy" in name else 9)


@pytest.mark.slow
@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_checkpoint_of_every_family_is_green(name, tmp_path):
    families.FAMILIES[name](tmp_path / "model")
    assert_green(saccade.check(tmp_path / "model"), 7)


@pytest.mark.slow
def test_a_checkpoint_of_marian_is_green(marian_folder):
    assert_green(saccade.check(marian_folder), 12)


def test_every_family_has_a_checkpoint():
    from saccade.pretrained.families import FAMILIES

    short = {"gemma3_text": "gemma3"}
    names = {short.get(name, name) for name in FAMILIES}
    assert names - families.FAMILIES.keys() == {"marian", "efficientnet_lite"}  # the last runs no task as it is


@pytest.mark.parametrize("name", foreign.MODELS)
def test_a_model_of_transformers_is_green(name):
    assert_green(saccade.check(foreign.MODELS[name](), tokenizer=foreign.tokenizer()), 10)
