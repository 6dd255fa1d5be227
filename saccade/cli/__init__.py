"""The command line: thin verbs that parse, call the api and print. Data goes to stdout, the rest to stderr."""

from saccade.cli import listing, showing, training, using
from saccade.cli.group import main

__all__ = ["listing", "main", "showing", "training", "using"]
