"""Whole models with sounds as other libraries lay them out."""
