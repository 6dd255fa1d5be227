"""The pages of the documentation and their commands, those that the tests run and those that say why not."""

from pathlib import Path

from docs.commands import blocks, replaced

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/tutorials/*.md"))]
PAGES = [page for page in PAGES if page.name not in ("log.md", "results.md")]  # records of what was measured
RAN = "commands of the documentation"  # property of a test
NOTHING = "true"  # what replaces a command that the tests cannot run


def commands(page: Path, *, run: bool) -> list[str]:
    """Return the commands of a page that are run, or those that are not: marked so, or replaced by nothing."""
    return [
        command.text
        for block in blocks(page)
        for command in block.commands
        if run != (bool(block.not_run) or replaced(command.text, block.replacements, {}).split(" ")[0] == NOTHING)
    ]
