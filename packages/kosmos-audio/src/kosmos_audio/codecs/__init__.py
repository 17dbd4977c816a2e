"""How sound becomes numbers that a model writes, and sound again."""
