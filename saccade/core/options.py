"""Options of a prediction that every task has."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PredictOptions:
    """Options of a prediction."""

    attention: bool = False
    """keep the attention of every layer and head"""
