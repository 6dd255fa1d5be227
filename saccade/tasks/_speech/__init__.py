"""What tasks on sound share."""
