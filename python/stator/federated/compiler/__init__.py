"""Building blocks, and what is done with them."""
