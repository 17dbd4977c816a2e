"""Optimizers whose step is bound by memory: one pass over cache-sized parts, a compiled pass or one GPU kernel."""
