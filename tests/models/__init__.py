"""Reduced versions of the demo models against eager."""
