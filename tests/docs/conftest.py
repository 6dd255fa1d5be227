"""The count of commands of the documentation that were run, printed at the end of a test run in any processes."""

import pytest

from tests.docs.pages import PAGES, RAN, commands


@pytest.hookimpl(hookwrapper=True)
def pytest_terminal_summary(terminalreporter):
    yield
    reports = [report for group in terminalreporter.stats.values() for report in group]
    ran = sum(
        value
        for report in reports
        if getattr(report, "when", "") == "call" and report.passed
        for name, value in report.user_properties
        if name == RAN
    )
    if ran or any("test_commands.py" in getattr(report, "nodeid", "") for report in reports):
        run, not_run = (sum(len(commands(page, run=kind)) for page in PAGES) for kind in (True, False))
        terminalreporter.write_line(f"docs: {ran} of {run} commands were run; {not_run} others say why they are not")
