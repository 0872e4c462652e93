"""Reports: what a run or an audit found, as one HTML file that needs nothing else."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
