"""Pictures as numbers that a model writes, and back."""
