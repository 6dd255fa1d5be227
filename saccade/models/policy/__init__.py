"""Policies: what to do next, from what is observed."""
