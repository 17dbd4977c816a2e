"""Which settings make a run fastest on this machine, found by trying: ``kosmos tune``."""
