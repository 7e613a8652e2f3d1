"""Small functions over every language feature: plain Python against recorded and replayed."""
