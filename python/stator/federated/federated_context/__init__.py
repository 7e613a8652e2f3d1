"""The context in which federated computations are traced."""
