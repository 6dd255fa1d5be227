"""Demos: generators that write ordinary data files; one file each, the folder is the registry."""

import importlib
from pathlib import Path

from saccade.demo._demo import Demo
from saccade.errors import UsageError, suggest


def demo_names() -> list[str]:
    """Return the demos: the files of this folder."""
    return sorted(path.stem.replace("_", "-") for path in Path(__file__).parent.glob("[!_]*.py"))


def load_demo(name: str) -> Demo:
    """Return the demo of that name."""
    if name not in demo_names():
        raise UsageError(f"no demo '{name}'{suggest(name, demo_names())}")
    demo = importlib.import_module(f"saccade.demo.{name.replace('-', '_')}").DEMO
    assert isinstance(demo, Demo)
    return demo
