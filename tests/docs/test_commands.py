"""Every command of the documentation: run in a folder of its own, or with a reason why not, and parsed in any case."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from docs.commands import Shell, blocks, files, missing, run_page
from saccade.api import describe_task, list_tasks
from saccade.cli import main
from tests.docs.files import write_file
from tests.docs.pages import NOTHING, PAGES, RAN, ROOT, commands
from tests.docs.preloaded import write_programs

RUN = [page for page in PAGES if commands(page, run=True)]
SPAN = re.compile(r"(?<!`)`(saccade [a-z][^`]*)`(?!`)")
END = re.compile(r"\s(#|\||>|&|;|<).*", re.DOTALL)  # a comment, a pipe, a redirection


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables of a shell in which `saccade` and `python` start at once."""
    folder = tmp_path_factory.mktemp("programs")
    write_programs(folder / "bin", folder / "socket")
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    variables = {**os.environ, "PATH": path, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    if sys.platform != "linux":
        yield variables
        return
    program = [sys.executable, str(ROOT / "tests" / "docs" / "preloaded.py"), str(folder / "socket")]
    with subprocess.Popen(program, env=variables, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
            yield variables
        finally:
            server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(
    page: Path,
    environment: dict[str, str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    for name in files(page):
        if name == "my-bert":
            shutil.copytree(request.getfixturevalue("bert_folder"), tmp_path / name)
        else:
            write_file(tmp_path, name)
    shell, ran = Shell(tmp_path, environment), 0
    try:
        for block, command, result in run_page(page, shell, quick=True):
            ran += command.text.split(" ")[0] != NOTHING
            place = f"{block.place}: $ {command.text}\n{result.output}"
            assert result.exit_code == command.exit_code, f"exit code {result.exit_code}; {place}"
            line = missing(command.output, result.output)
            assert line is None, f"no line '{line}' in the output; {place}"
    finally:
        shell.close()
    assert ran == len(commands(page, run=True))
    record_property(RAN, ran)


def test_a_block_that_is_not_run_says_why() -> None:
    """And most commands of the documentation are run."""
    left = [block for page in PAGES for block in blocks(page) if block.not_run]
    assert all(len(block.not_run.split()) > 2 for block in left)
    run, not_run = (sum(len(commands(page, run=kind)) for page in PAGES) for kind in (True, False))
    assert run > not_run


def test_a_block_with_commands_must_have_a_language(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n```\nsaccade train book.txt\n```\n")
    with pytest.raises(ValueError, match=r"page.md:3: a block with commands must be labelled console or bash"):
        blocks(page)
    page.write_text("```\nsaccade: dim must be 1\n```\n")
    assert blocks(page) == []


def written_commands(page: Path) -> Iterator[str]:
    """Yield the commands of `saccade` in the blocks and sentences of a page."""
    for block in blocks(page):
        for command in (command for command in block.commands if command.exit_code == 0):  # others are mistakes
            for part in re.split(r"\||&&|;|\n", command.text.replace("\\\n", " ")):
                if part.strip().startswith("saccade "):
                    yield part.strip()
    yield from SPAN.findall(page.read_text(encoding="utf-8"))


SETTINGS = {entry["name"] for task in list_tasks() for entry in describe_task(task["name"])["settings"]}
GROUPS = {name.split(".")[0] for name in SETTINGS}


def check_command(text: str) -> None:
    """Raise where the command line would: for an unknown command, option or setting."""
    words = shlex.split(END.sub("", text))[1:]
    context, command = click.Context(main, info_name="saccade"), main
    while isinstance(command, click.Group) and words and not words[0].startswith("-") and words[0] != "COMMAND":
        name = words.pop(0)
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"no command '{name}'")
        context, command = click.Context(found, context, name), found
    if isinstance(command, click.Group):
        return
    values, _, _ = command.make_parser(context).parse_args([word for word in words if word != "..."])
    overrides = values.get("overrides")
    for entry in overrides if isinstance(overrides, tuple | list) else ():
        name = entry.partition("=")[0]
        if "=" in entry and name not in SETTINGS and not name.isupper() and "NAME" not in name:
            raise click.UsageError(f"no setting '{name}'")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_that_is_written_can_be_parsed(page: Path) -> None:
    wrong = []
    for text in written_commands(page):
        try:
            check_command(text)
        except (click.UsageError, ValueError) as error:
            wrong.append(f"{text}: {error}")
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("saccade trian book.txt", "no command 'trian'"),
        ("saccade train book.txt --minuets 3", "No such option '--minuets'"),
        ("saccade train book.txt model.dmi=3", "no setting 'model.dmi'"),
    ],
)
def test_a_misspelt_command_of_a_page_is_noticed(text: str, message: str) -> None:
    with pytest.raises(click.UsageError, match=re.escape(message)):
        check_command(text)


def test_output_is_compared_in_order_and_without_numbers() -> None:
    actual = "task: translation\n3 rows, loss 0.25\nwrote out.html\n"
    assert missing(("task: translation", "40,000 rows, loss 1.5e-03"), actual) is None
    assert missing(("...", "3 rows..."), actual) is None
    assert missing(("3 rows, loss 0.25", "task: translation"), actual) == "task: translation"
    assert missing(("wrote out.svg",), actual) == "wrote out.svg"


def test_a_page_is_read(tmp_path: Path) -> None:
    """Comments, replacements, several commands with their output, a file, a heredoc and an exit code."""
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- test, all blocks: --minutes 3 => --steps 5 -->\n"
        "<!-- files: pairs.tsv, book.txt -->\n\n"
        "<!-- test: 8000 => PORT -->\n<!-- exit code: 3 -->\n"
        "```console\n$ echo 8000 \\\n  --minutes 3\n8000 --minutes 3\n$ exit 3\n```\n\n"
        '```python title="make.py"\nprint(1)\n```\n\n'
        "```bash\n# a comment\ncat > x <<'EOF'\n$ y\nEOF\n```\n"
        "<!-- not run: needs two machines -->\n```bash\nsudo true\n```\n```json\n{}\n```\n"
    )
    first, second, third, fourth = blocks(page)
    assert [command.text for command in first.commands] == ["echo 8000 \\\n  --minutes 3", "exit 3"]
    assert [command.exit_code for command in first.commands] == [0, 3]
    assert first.replacements == (("8000", "PORT"), ("--minutes 3", "--steps 5"))
    assert (second.file, second.content, second.commands) == ("make.py", "print(1)\n", ())
    assert [command.text for command in third.commands] == ["cat > x <<'EOF'\n$ y\nEOF"]
    assert fourth.not_run == "needs two machines"
    assert files(page) == ["pairs.tsv", "book.txt"]
    shell = Shell(tmp_path, dict(os.environ))
    outputs = [result.output.split() for _, _, result in run_page(page, shell, quick=True)]
    assert outputs[0][1:] == ["--steps", "5"] and outputs[0][0] not in ("8000", "PORT")
    assert (tmp_path / "x").read_text() == "$ y\n" and (tmp_path / "make.py").is_file()
