"""Traces that the next start of a program finds again (`stator.save_traces`, `stator.load_traces`).

`digests` says what an object stands for that a guard knows by identity, `objects` finds such
objects again, `files` reads and writes what is kept.
"""
