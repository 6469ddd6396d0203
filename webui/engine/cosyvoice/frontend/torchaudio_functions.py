"""The functions of torchaudio that the features use.

Its published wheels are built for CUDA: beside a torch for the CPU, or for another version of CUDA,
the compiled extension does not load, and the functions that need none of it are used without.
"""

from __future__ import annotations

import importlib
import logging
import sys
from types import ModuleType

log = logging.getLogger(__name__)
EXTENSION = "torchaudio._extension"


def _load() -> None:
    """Imports torchaudio, with an empty module in the place of its extension only after the real
    one failed (environment specification).
    """
    try:
        importlib.import_module("torchaudio")
    except (OSError, RuntimeError) as error:
        reason = str(error).split("\n")[0][:120]
        log.info("torchaudio is used without its compiled extension: %s", reason)
        empty = ModuleType(EXTENSION)
        empty._IS_TORCHAUDIO_EXT_AVAILABLE = empty._IS_ALIGN_AVAILABLE = False
        empty.fail_if_no_align = lambda function: function
        sys.modules[EXTENSION] = empty
        importlib.import_module("torchaudio")


_load()
from torchaudio.compliance.kaldi import fbank  # noqa: E402
from torchaudio.functional import melscale_fbanks  # noqa: E402
from torchaudio.transforms import Resample  # noqa: E402

__all__ = ["Resample", "fbank", "melscale_fbanks"]
