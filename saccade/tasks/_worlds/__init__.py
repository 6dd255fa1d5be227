"""Tasks in worlds: episodes that a model acts out."""
