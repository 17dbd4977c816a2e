"""Scores on held-out documents."""
