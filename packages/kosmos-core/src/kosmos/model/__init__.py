"""Encoders, connectors and backbones, and the model that they make together. May know a batch."""
