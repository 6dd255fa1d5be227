"""Data: from raw files to examples that a task can learn from, with every error naming its file and line."""
