from .export import export_onnx, model_card
from .light_policy import LightPolicy, load_policy
from .running import serve
from .settings import Fallback, ServiceSettings
from .stores import Durability

__all__ = [
    "Durability",
    "Fallback",
    "LightPolicy",
    "ServiceSettings",
    "export_onnx",
    "load_policy",
    "model_card",
    "serve",
]
