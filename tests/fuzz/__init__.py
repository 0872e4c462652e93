"""Random files for every reader, well-formed and damaged, and slow readers of text that say what is in them."""
