"""Computations, and how their arguments are packed."""
