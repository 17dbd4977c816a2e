"""What can be said in a run file, told from the code: for the pages of the docs and ``kosmos explain``."""
