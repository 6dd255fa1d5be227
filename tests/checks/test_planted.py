"""Every planted bug is caught by the invariant it is planted for, and nothing else is flagged but its consequences."""

import pytest

import saccade
from saccade.checks import list_invariants
from tests.checks.planted import BUGS, Planted

CAUGHT: list[str] = []


def flagged(report: saccade.CheckReport) -> set[str]:
    return {result.name for result in report.results if result.status in ("failed", "warning")}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught_and_none_besides(bug: Planted, workshop) -> None:
    planted = bug.plant(workshop)
    report = saccade.check(**planted) if isinstance(planted, dict) else saccade.check(planted)
    found = flagged(report)
    assert bug.invariant in found, str(report)
    assert found <= {bug.invariant, *bug.consequences}, str(report)
    result = report[bug.invariant]
    assert result.status == ("warning" if bug.invariant == "heads" else "failed")
    assert result.where, "a failure says where to look"
    CAUGHT.append(bug.name)


def test_every_invariant_has_a_planted_bug_and_all_were_caught(capsys) -> None:
    missing = {row["name"] for row in list_invariants()} - {bug.invariant for bug in BUGS}
    assert missing == {"resume"}  # tests/checks/test_resuming.py
    if len(CAUGHT) == 0:
        pytest.skip("the planted bugs were not run in this process")
    with capsys.disabled():
        print(f"\n{len(CAUGHT)}/{len(BUGS)} planted bugs caught, none besides their consequences")
    assert len(CAUGHT) == len(BUGS)
