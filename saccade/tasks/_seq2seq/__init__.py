"""Shared code of the sequence-to-sequence tasks, translation and summarisation."""
