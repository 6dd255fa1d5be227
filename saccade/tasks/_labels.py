"""Tables of labels that several tasks report."""

import numpy as np

from saccade.core import Table
from saccade.metrics import classification

TABLE_LABELS = 12  # largest complete confusion matrix; with more labels, number of mistakes listed


def confusion_table(confusion: classification.Confusion) -> Table:
    """Return the confusion matrix; for many labels only the most frequent mistakes."""
    names, counts = confusion.labels, confusion.table
    if len(names) <= TABLE_LABELS:
        rows = tuple((name, *map(str, row)) for name, row in zip(names, counts.tolist(), strict=True))
        return Table("confusion matrix", ("expected, predicted as", *names), rows)
    mistakes = counts * (1 - np.eye(len(names), dtype=np.int64))
    cells = [divmod(int(cell), len(names)) for cell in np.argsort(-mistakes, axis=None, kind="stable")[:TABLE_LABELS]]
    rows = tuple(
        (names[row], names[column], f"{mistakes[row, column]:,}") for row, column in cells if mistakes[row, column]
    )
    return Table("most frequent mistakes", ("expected", "predicted as", "count"), rows)
