"""Use cases without a screen: speak, voices, drafts, takes, admission, metrics."""

from ..audio import CODED, Coder, Resampler, coded, coded_hz
from .addresses import reachable
from .archive import Zip
from .arriving import Written
from .asked import OPENAI_MODELS, OPENAI_VOICES, known_language
from .batch import BATCH_LIMITS, Ask, Batch
from .consents import BY_PAGE, Given
from .demos import DEMO_LIMITS, GUEST, Demo, is_guest
from .doctor import Doctor
from .drafts import Draft, wav
from .job import UNLIMITED, Job, Snapshot
from .keys import ADMIN, PER_MINUTE, SCOPES, Key, Keys
from .logins import Logins
from .models import ModelDownload
from .pronunciations import TERM_LIMITS
from .shelf import Offer, Shelf
from .studio import ENGINE_CHANGE, Studio
from .takes import file_name, stopped_at, usual_s
from .term_files import KINDS as TERM_FILES
from .usage import Used

__all__ = [
    "ADMIN",
    "BATCH_LIMITS",
    "BY_PAGE",
    "CODED",
    "DEMO_LIMITS",
    "ENGINE_CHANGE",
    "GUEST",
    "OPENAI_MODELS",
    "OPENAI_VOICES",
    "PER_MINUTE",
    "SCOPES",
    "TERM_FILES",
    "TERM_LIMITS",
    "UNLIMITED",
    "Ask",
    "Batch",
    "Coder",
    "Demo",
    "Doctor",
    "Draft",
    "Given",
    "Job",
    "Key",
    "Keys",
    "Logins",
    "ModelDownload",
    "Offer",
    "Resampler",
    "Shelf",
    "Snapshot",
    "Studio",
    "Used",
    "Written",
    "Zip",
    "coded",
    "coded_hz",
    "file_name",
    "is_guest",
    "known_language",
    "reachable",
    "stopped_at",
    "usual_s",
    "wav",
]
