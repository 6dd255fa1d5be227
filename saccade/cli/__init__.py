"""The command line: thin commands that parse, call the public API and print. Data go to stdout, messages to stderr."""

from saccade.cli import (
    chat,
    check,
    compare,
    demo,
    features,
    fewshot,
    heads,
    lectures,
    listing,
    models,
    plan,
    predict,
    serve,
    studio,
    train,
)
from saccade.cli.group import main

__all__ = [
    "chat",
    "check",
    "compare",
    "demo",
    "features",
    "fewshot",
    "heads",
    "lectures",
    "listing",
    "main",
    "models",
    "plan",
    "predict",
    "serve",
    "studio",
    "train",
]
