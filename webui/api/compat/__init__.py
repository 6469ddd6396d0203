"""Other programs' routes, so that scripts written for those work here by changing the address.

Each file knows one of them; none decides anything.
"""

from . import cosyvoice, gptsovits

__all__ = ["cosyvoice", "gptsovits"]
