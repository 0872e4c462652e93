from .demo import serve_demo
from .export import export_onnx, model_card
from .export_trees import export_lightgbm
from .light_policy import LightPolicy, load_policy
from .pages import monitor_page, write_monitor_page
from .running import serve
from .settings import Fallback, ServiceSettings
from .stores import Durability
from .watching import Watched, WatchedInterval, monitor

__all__ = [
    "Durability",
    "Fallback",
    "LightPolicy",
    "ServiceSettings",
    "Watched",
    "WatchedInterval",
    "export_lightgbm",
    "export_onnx",
    "load_policy",
    "model_card",
    "monitor",
    "monitor_page",
    "serve",
    "serve_demo",
    "write_monitor_page",
]
