"""Peak memory, leaks and threads."""
