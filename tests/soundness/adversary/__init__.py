"""Programs that were written to break Stator."""
