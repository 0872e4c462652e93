from .light_policy import LightPolicy, load_policy

__all__ = ["LightPolicy", "load_policy"]
