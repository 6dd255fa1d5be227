"""Sequence-to-sequence tasks: what translation and summarisation have in common."""
