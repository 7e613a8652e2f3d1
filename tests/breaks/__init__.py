"""Graph breaks: where they are, and what goes on behind them."""
