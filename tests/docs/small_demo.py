"""`saccade demo` with fewer generated files: python small_demo.py ROWS NAME [OPTIONS]."""

import sys
from dataclasses import replace
from pathlib import Path

from saccade import demo
from saccade.cli import main

rows, name = int(sys.argv[1]), sys.argv[2]
original = demo.load_demo(name)
small = {
    task: replace(
        entry, write=lambda folder, write=entry.write: write(Path(folder), train_rows=rows, valid_rows=rows // 5)
    )
    for task, entry in original.tasks.items()
}
demo.load_demo = lambda _: replace(original, tasks=small)  # type: ignore[assignment]
main(["demo", *sys.argv[2:]], prog_name="saccade")
