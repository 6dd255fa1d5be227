"""What the tasks that imitate recorded actions share."""
