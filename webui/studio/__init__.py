"""Use cases without a screen: speak, voices, drafts, takes, admission, metrics."""

from .drafts import Draft, wav
from .job import UNLIMITED, Job, Snapshot
from .models import ModelDownload
from .studio import Studio
from .takes import file_name

__all__ = ["UNLIMITED", "Draft", "Job", "ModelDownload", "Snapshot", "Studio", "file_name", "wav"]
