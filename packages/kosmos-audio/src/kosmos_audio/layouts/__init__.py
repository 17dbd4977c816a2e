"""Whole models with pictures as other libraries lay them out."""
