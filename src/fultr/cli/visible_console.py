"""A console that shows control characters; in a module of its own, since rich is loaded when it is used."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from fultr.errors import visible


class VisibleConsole(Console):
    """A console on which text shows its control characters instead of obeying them."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print text, and what is made of text that is visible already."""
        super().print(*(visible(one) if isinstance(one, str) else one for one in objects), **options)
