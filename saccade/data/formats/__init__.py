"""File formats of examples: pairs, labelled rows, tagged words, questions, documents."""
