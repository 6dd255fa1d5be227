"""What the tasks with an encoder have in common; the tasks themselves are in `tasks`."""
