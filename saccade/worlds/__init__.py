"""Worlds: small simulated surroundings in which a model acts; pure functions on arrays."""
