"""Use cases without a screen: speak, voices, drafts, takes, admission, metrics."""

from ..audio import CODED, Coder
from .archive import Zip
from .batch import BATCH_LIMITS, Ask, Batch
from .demos import DEMO_LIMITS, GUEST
from .drafts import Draft, wav
from .job import UNLIMITED, Job, Snapshot
from .keys import SCOPES
from .models import ModelDownload
from .pronunciations import TERM_LIMITS
from .studio import Studio
from .takes import file_name
from .term_files import KINDS as TERM_FILES

__all__ = ["BATCH_LIMITS", "CODED", "DEMO_LIMITS", "GUEST", "SCOPES", "TERM_FILES", "TERM_LIMITS", "UNLIMITED", "Ask", "Batch", "Coder", "Draft", "Job", "ModelDownload", "Snapshot", "Studio", "Zip", "file_name", "wav"]
