"""What translation and summarisation share."""
