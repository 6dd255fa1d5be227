"""Shared code of the tasks with an encoder; the tasks themselves are in `tasks`."""
