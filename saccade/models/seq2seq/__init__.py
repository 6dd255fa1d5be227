"""Sequence-to-sequence architectures, one file each."""
