"""Encoders of speech."""
