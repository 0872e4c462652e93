"""Policies that are trained, and the files they are saved in."""
