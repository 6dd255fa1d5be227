"""The command line: thin verbs that parse, call the api and print. Data goes to stdout, the rest to stderr."""

from saccade.cli import comparing, features, listing, models, showing, studio, training, using
from saccade.cli.group import main

__all__ = ["comparing", "features", "listing", "main", "models", "showing", "studio", "training", "using"]
