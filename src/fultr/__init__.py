"""Learn rankings from clicks that are useful to searchers and fair to the items ranked."""

__version__ = "0.1.0.dev0"
