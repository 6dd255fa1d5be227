"""Encoders and language models, one file each."""
