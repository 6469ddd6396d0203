"""The sentence for a model file that cannot be used: which file, what was expected, what was found,
what to do. Knows no formats.
"""

from __future__ import annotations

from ...errors import NotReady
from ...messages import Message, message


def download_advice(title: str) -> Message:
    """For a file that belongs to another model than `title`."""
    return message("file.use_model_files", title=title)


def model_fault(
    file: str, expected: Message | str, actual: Message | str, way_out: Message | None = None
) -> NotReady:
    """NotReady about `file` (a name inside the model directory). A str is said alike in both
    languages.
    """
    return NotReady(
        "model_file",
        expected=expected,
        found=actual,
        remedy=way_out or message("file.fetch_again"),
        param=file,
    )
