"""The cases, one file per theme."""
