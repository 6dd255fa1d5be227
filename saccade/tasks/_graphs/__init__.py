"""What the tasks on graphs share."""
