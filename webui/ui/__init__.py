"""The page (Gradio): widgets to types and back.

`build` makes it; `PageMiddleware` stands before Gradio's routes.
"""

from .middleware import PageMiddleware
from .owner import owner_of
from .page import build
from .uploads import Uploads

__all__ = ["PageMiddleware", "Uploads", "build", "owner_of"]
