"""Tokenizers, vocabularies and input templates."""
