"""What a trace reads from outside is guarded: names, attributes, items, identity, PyTorch's state."""
