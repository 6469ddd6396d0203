"""Disk: the only room that turns ids into paths. Ids are ours; nothing a user sends becomes a path."""

from .files import Folder
from .pronunciations import PronunciationStore
from .takes import TakeStore
from .voices import VoiceStore

__all__ = ["Folder", "PronunciationStore", "TakeStore", "VoiceStore"]
