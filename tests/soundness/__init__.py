"""Every soundness rule and every guard kind, both ways."""
