"""What the language is built on: the container of values with and without names."""
