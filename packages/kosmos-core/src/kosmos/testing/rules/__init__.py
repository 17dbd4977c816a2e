"""The promises, a module for each kind of component. To add one, write its function and mark it with ``@rule``."""
