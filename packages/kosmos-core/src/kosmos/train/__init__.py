"""The trainer: optimization, checkpoints, metrics. May know all but the command line."""
