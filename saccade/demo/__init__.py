"""Demos: generators that write ordinary data files."""
