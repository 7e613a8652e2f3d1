"""Replays that fail, are interrupted or are taken back."""
