"""Graphs: nodes and edges with their columns, read from files and turned into numbers."""
