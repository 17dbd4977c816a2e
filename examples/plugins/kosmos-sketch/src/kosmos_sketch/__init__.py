"""Small gray pictures that a model reads and draws."""
