"""The contracts between tasks, the training loop and every front end."""
