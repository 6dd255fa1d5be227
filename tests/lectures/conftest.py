"""The count of rows that were shown, printed at the end of a test run, also of one in several processes."""

import pytest

from saccade.lectures import list_rows

PROPERTY = "lecture row"
SKIPPED = "lecture row skipped"


def recorded(reports, name):
    """Return the values of a property of the tests, in order."""
    calls = (report for report in reports if getattr(report, "when", "") == "call")
    return sorted({value for report in calls for key, value in report.user_properties if key == name})


def summary(reports):
    """Return the counts in one line; rows that need a download are named if it could not be made."""
    reports = list(reports)
    shown = recorded([report for report in reports if getattr(report, "passed", False)], PROPERTY)
    skipped = recorded([report for report in reports if getattr(report, "skipped", False)], SKIPPED)
    line = f"lectures: {len(shown)} of {len(list_rows())} rows shown"
    named = ", ".join(skipped)
    return f"{line}, {len(skipped)} skipped for want of a download or a package: {named}" if skipped else line


@pytest.hookimpl(hookwrapper=True)
def pytest_terminal_summary(terminalreporter):
    yield
    reports = [report for group in terminalreporter.stats.values() for report in group]
    if any("test_rows.py" in getattr(report, "nodeid", "") for report in reports):
        terminalreporter.write_line(summary(reports))
