"""Every planted bug is caught by the invariant it is planted for, and nothing else is flagged but its consequences."""

from collections.abc import Callable
from pathlib import Path

import pytest

import saccade
from saccade.checks import list_invariants
from tests.checks.planted import CAUGHT, Planted, Workshop
from tests.checks.planted_texts import BUGS  # all of them


def flagged(report: saccade.CheckReport) -> set[str]:
    return {result.name for result in report.results if result.status in ("failed", "warning")}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught_and_none_besides(
    bug: Planted, workshop: Workshop, record_property: Callable[[str, object], None]
) -> None:
    planted = bug.plant(workshop)
    report = saccade.check(**planted) if isinstance(planted, dict) else saccade.check(planted)
    flags = flagged(report)
    assert bug.invariant in flags, str(report)
    assert flags <= {bug.invariant, *bug.consequences}, str(report)
    result = report[bug.invariant]
    assert result.status == ("warning" if bug.invariant == "heads" else "failed")
    assert result.where, "a failure says where to look"
    record_property(CAUGHT, bug.name)


def test_every_invariant_has_a_planted_bug() -> None:
    missing = {row["name"] for row in list_invariants()} - {bug.invariant for bug in BUGS}
    assert missing == {"resume"}  # tests/checks/test_resuming.py
    assert len({bug.name for bug in BUGS}) == len(BUGS)


def test_the_documentation_counts_the_planted_bugs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
    assert f"plants {len(BUGS)} of them" in text
