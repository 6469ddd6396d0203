"""Disk: the only room that turns ids into paths.

Ids are ours; nothing a user sends becomes a path.
"""

from .access import AccessStore
from .choices import ChoiceStore
from .consents import ConsentStore
from .files import Folder
from .jobs import BatchJob, JobStore, Line
from .private import tighten
from .pronunciations import PronunciationStore
from .sounds import SoundStore
from .takes import TakeStore
from .voices import VoiceStore

__all__ = [
    "AccessStore",
    "BatchJob",
    "ChoiceStore",
    "ConsentStore",
    "Folder",
    "JobStore",
    "Line",
    "PronunciationStore",
    "SoundStore",
    "TakeStore",
    "VoiceStore",
    "tighten",
]
