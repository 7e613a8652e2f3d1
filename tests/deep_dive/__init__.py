"""The printed examples of the deep dive."""
