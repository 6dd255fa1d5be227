"""What the image tasks share."""
