"""Multichannel sensor windows for Kosmos."""
