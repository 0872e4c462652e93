"""Random files for every reader, well-formed and damaged, and slow readers of text to compare with."""
