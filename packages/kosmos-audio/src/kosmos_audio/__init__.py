"""Sound for Kosmos: reading and planning, encoders and a sample set."""
