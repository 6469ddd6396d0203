"""The page (Gradio): widgets to types and back. `build` makes it, `owner_of` tells whose event it is."""

from .owner import owner_of
from .page import build

__all__ = ["build", "owner_of"]
