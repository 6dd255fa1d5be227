"""The count of rows that were shown, printed at the end of a test run, also of one in several processes."""

import pytest

from saccade.lectures import list_rows

PROPERTY = "lecture row"


@pytest.hookimpl(hookwrapper=True)
def pytest_terminal_summary(terminalreporter):
    yield
    reports = [report for group in terminalreporter.stats.values() for report in group]
    shown = {
        value
        for report in reports
        if getattr(report, "when", "") == "call" and report.passed
        for name, value in report.user_properties
        if name == PROPERTY
    }
    if shown or any("test_rows.py" in getattr(report, "nodeid", "") for report in reports):
        terminalreporter.write_line(f"lectures: {len(shown)} of {len(list_rows())} rows shown")
