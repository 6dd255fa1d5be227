"""The command line: thin commands that parse, call the public API and print. Data go to stdout, messages to stderr."""

from saccade.cli import compare, demo, features, lectures, listing, models, predict, studio, train
from saccade.cli.group import main

__all__ = ["compare", "demo", "features", "lectures", "listing", "main", "models", "predict", "studio", "train"]
