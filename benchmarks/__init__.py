"""Measurements of speed and memory; run them with `make bench`."""
