"""Use cases without a screen: speak, voices, drafts, takes, admission, metrics."""

from ..audio import CODED, Encoder, Resampler, coded, coded_hz
from .addresses import reachable
from .alignment import AlignedSegment, Alignment
from .batch.service import BATCH_LIMITS, BatchService, LineRequest
from .consents import BY_PAGE, ConsentInfo
from .dictionary_files import KINDS as TERM_FILES
from .doctor import Doctor
from .drafts import Draft, wav
from .job_reader import JobReader, collect, open_job
from .keys import ADMIN, PER_MINUTE, SCOPES, Key, Keys
from .logins import Logins
from .model_download import ModelDownload
from .model_library import DownloadableModel, ModelLibrary
from .pronunciations import TERM_LIMITS
from .request_builder import OPENAI_MODELS, OPENAI_VOICES, known_language
from .share_links import DEMO_LIMITS, GUEST, ShareLink, is_guest
from .speech_job import UNLIMITED, Snapshot, SpeechJob
from .studio import ENGINE_CHANGE, Studio
from .subtitles import FORMATS as SUBTITLES
from .takes import file_name, stopped_at, usual_s
from .text_source import TextSource
from .usage import Used
from .zip_stream import ZipStream

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
    "SUBTITLES",
    "TERM_FILES",
    "TERM_LIMITS",
    "UNLIMITED",
    "AlignedSegment",
    "Alignment",
    "BatchService",
    "ConsentInfo",
    "Doctor",
    "DownloadableModel",
    "Draft",
    "Encoder",
    "JobReader",
    "Key",
    "Keys",
    "LineRequest",
    "Logins",
    "ModelDownload",
    "ModelLibrary",
    "Resampler",
    "ShareLink",
    "Snapshot",
    "SpeechJob",
    "Studio",
    "TextSource",
    "Used",
    "ZipStream",
    "coded",
    "coded_hz",
    "collect",
    "file_name",
    "is_guest",
    "known_language",
    "open_job",
    "reachable",
    "stopped_at",
    "usual_s",
    "wav",
]
