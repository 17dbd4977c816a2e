"""Sounds as numbers that a model writes, and back."""
