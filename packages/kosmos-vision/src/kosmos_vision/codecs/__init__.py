"""Codecs of pictures: as numbers that a model writes, and as files of what it wrote."""
