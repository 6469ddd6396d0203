"""Disk: the only room that turns ids into paths.

Ids are ours; nothing a user sends becomes a path.
"""

from .access_db import AccessStore
from .blob_store import BlobStore
from .choices import ChoiceStore
from .consents import ConsentStore
from .folder_store import Folder
from .jobs import BatchJob, JobStore, Line
from .private_files import tighten
from .pronunciations import PronunciationStore
from .takes import TakeStore
from .voices import VoiceStore

__all__ = [
    "AccessStore",
    "BatchJob",
    "BlobStore",
    "ChoiceStore",
    "ConsentStore",
    "Folder",
    "JobStore",
    "Line",
    "PronunciationStore",
    "TakeStore",
    "VoiceStore",
    "tighten",
]
