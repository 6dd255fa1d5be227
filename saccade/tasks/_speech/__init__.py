"""What the speech tasks share."""
