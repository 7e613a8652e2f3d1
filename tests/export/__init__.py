"""`stator.export`."""
