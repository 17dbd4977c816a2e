"""Real, small plugins that tests install in a registry."""
