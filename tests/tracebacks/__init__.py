"""Tracebacks of compiled code are those of plain Python, character for character."""
