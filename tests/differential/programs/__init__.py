"""Programs that nobody has tuned Stator for, by what they use. They needn't be one graph: they have to be right."""
