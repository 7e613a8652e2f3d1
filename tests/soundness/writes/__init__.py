"""What a trace writes is written by its replays: slots, lists, tables, gradients, logs, locks."""
