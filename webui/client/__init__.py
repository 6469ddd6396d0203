"""The studio from a program's side: needs httpx and tenacity only, nothing of the server's.

from webui.client import TTS
TTS("http://127.0.0.1:7860").synthesize("Good morning.", "starter-en-mid").save("morning.wav")
"""

from .async_client import AsyncStream, AsyncTTS
from .audio import Sound
from .batch import AsyncBatchClient, Progress
from .batch_input import Line, read
from .batch_worker import Result
from .client import TTS, Stream
from .errors import Broken, Changed, Unreachable
from .request import SpeechParams
from .retry import Retry

__all__ = [
    "TTS",
    "AsyncBatchClient",
    "AsyncStream",
    "AsyncTTS",
    "Broken",
    "Changed",
    "Line",
    "Progress",
    "Result",
    "Retry",
    "Sound",
    "SpeechParams",
    "Stream",
    "Unreachable",
    "read",
]
