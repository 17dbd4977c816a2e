"""Point clouds for Kosmos."""
