"""The page (Gradio): widgets to types and back.

`build` makes it; `PageMiddleware` stands before Gradio's routes.
"""

from .auth import owner_of
from .middleware import PageMiddleware
from .page import build
from .uploads import Uploads

__all__ = ["PageMiddleware", "Uploads", "build", "owner_of"]
