"""The studio from a program's side: needs httpx and tenacity only, nothing of the server's.

from webui.client import TTS
TTS("http://127.0.0.1:7860").synthesize("Good morning.", "starter-en-mid").save("morning.wav")
"""

from .ask import Ask
from .atts import AsyncStream, AsyncTTS
from .batch import AsyncBatchClient, Progress
from .faults import Broken, Changed, Unreachable
from .lines import Line, read
from .retry import Retry
from .sound import Sound
from .tts import TTS, Stream
from .work import Result

__all__ = [
    "TTS",
    "Ask",
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
    "Stream",
    "Unreachable",
    "read",
]
