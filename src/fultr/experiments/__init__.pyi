from .comparison import compare, draw_comparison
from .methods import LEARN_FROM_CLICKS, METHODS
from .reproduction import EXAMPLE, FIGURES, plan_for, reproduce, write_table

__all__ = [
    "EXAMPLE",
    "FIGURES",
    "LEARN_FROM_CLICKS",
    "METHODS",
    "compare",
    "draw_comparison",
    "plan_for",
    "reproduce",
    "write_table",
]
