"""Help pages: complete summaries and aligned columns."""

import json
import re

import pytest
from click.testing import CliRunner

from saccade.api import describe_task, list_tasks
from saccade.cli import main


@pytest.mark.parametrize("arguments", [["--help"], ["models", "--help"]], ids=" ".join)
def test_no_summary_of_a_command_is_cut_off(arguments: list[str]) -> None:
    assert "..." not in CliRunner().invoke(main, arguments).stdout.partition("Commands:")[2]


@pytest.mark.parametrize("name", [task["name"] for task in list_tasks()])
def test_names_and_help_of_settings_are_aligned(name: str) -> None:
    lines = CliRunner().invoke(main, ["tasks", name]).stdout.splitlines()
    description = describe_task(name)
    for setting in [*description["settings"], *description["options"]]:
        default = setting["default"] if isinstance(setting["default"], str) else json.dumps(setting["default"])
        start = re.escape(f"  {setting['name']}={default}")
        assert any(re.fullmatch(rf"{start} {{2,}}{re.escape(setting['help'])} \(.*\)", line) for line in lines)


def test_the_commands_are_listed_in_the_order_of_their_use() -> None:
    listed = re.findall(r"^  (\w+)  ", CliRunner().invoke(main, ["--help"]).stdout.partition("Commands:")[2], re.M)
    assert listed[:3] == ["train", "resume", "evaluate"] and set(listed) == set(main.commands)
    assert listed.index("predict") < listed.index("chat") < listed.index("story") < listed.index("fewshot")
