"""Types, and what can be asked of them."""
