"""Moving pictures for Kosmos."""
