"""Policies that act on observations, and what trains them by imitation."""
