"""The only file that touches eSpeak NG: loads the library and turns one utterance into samples.

Runs in worker processes only.

eSpeak keeps one global state. The base voice is the package's own `f5` variant with its echo,
breath noise, flutter and the pulsing of trills switched off: exactly those remember earlier
utterances; without them the same text gives the same samples whatever was said before.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import tempfile
import threading
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

import numpy as np

from ...errors import EngineFault, NotReady
from .mandarin import spell, stand_in

VOICE_FILES = {
    "zh": "sit/cmn", "yue": "sit/yue", "en": "gmw/en-US", "ja": "jpx/ja", "ko": "ko",
    "ru": "zle/ru",
    "de": "gmw/de", "es": "roa/es", "fr": "roa/fr", "it": "roa/it",
}  # fmt: skip
# the southern merger of zh, ch, sh, r into z, c, s; and no curled vowel ends
_REPLACED = {
    "zh-sichuan": ("zh", b"replace 0 ts.h tsh\nreplace 0 ts. ts\nreplace 0 s. s\nreplace 0 i. i[\n")
}
_REMEMBERING = (b"echo", b"breath", b"breathw", b"flutter", b"roughness")
_SYNCHRONOUS, _UTF8, _INLINE_PHONEMES, _PHONEME_EVENTS, _RATE = 2, 1, 0x100, 1, 1
_WORD, _PHONEME = 1, 7
_IPA_TIED = 0x82 | ord("^") << 8  # of espeak_TextToPhonemes: IPA, sounds of several letters tied


class _EventId(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8)]


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int), ("unique", ctypes.c_uint), ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int), ("sample", ctypes.c_int), ("user", ctypes.c_void_p),
        ("id", _EventId),
    ]  # fmt: skip


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Event))


@dataclass(frozen=True)
class EspeakOutput:
    """samples: int16 (n,) at 22050 Hz; whole: False when it stopped at the limit; phonemes: (name,
    sample); words: (text index, sample).
    """

    samples: np.ndarray
    whole: bool
    phonemes: tuple[tuple[str, int], ...]
    words: tuple[tuple[int, int], ...]


def find_library(system_path: str = "") -> tuple[str, str | None]:
    """(library file, data folder or None for the library's own). Raises NotReady."""
    if system_path:
        return system_path, None
    try:
        import espeakng_loader

        return espeakng_loader.get_library_path(), espeakng_loader.get_data_path()
    except ImportError:
        library_name = ctypes.util.find_library("espeak-ng")
        if library_name:
            return library_name, None
        raise NotReady("no_espeak") from None


def one_at_a_time(method):
    """Of a Speaker's methods that use the library."""

    @wraps(method)
    def locked(self: EspeakLibrary, *args, **named):
        with self._lock:
            return method(self, *args, **named)

    return locked


class EspeakLibrary:
    """eSpeak NG in this process.

    Thread-safe, one text at a time; make one: initialising the library a second time can crash it.
    """

    def __init__(self, system_path: str = ""):
        path, data = find_library(system_path)
        try:
            self._lib = ctypes.CDLL(path)
        except OSError as e:
            raise NotReady("no_espeak") from e
        rate = self._lib.espeak_Initialize(
            _SYNCHRONOUS, 60, data.encode() if data else None, _PHONEME_EVENTS | 1 << 15
        )
        if rate != 22050 or not hasattr(self._lib, "espeak_ng_SetVoiceByFile"):
            raise NotReady("no_espeak")
        folder = ctypes.c_char_p()
        self._lib.espeak_Info.restype = ctypes.c_char_p
        self._lib.espeak_Info(ctypes.byref(folder))
        self._data = Path(data or os.fsdecode(folder.value or b""))
        self._definitions: dict[str, bytes] = {}
        self._current: tuple[str, int] = ("", 0)
        self._lock = threading.RLock()  # the library keeps one global state
        self._pcm: list[bytes] = []
        self._events: list[tuple[int, str | int, int]] = []
        self._count = self._limit = 0
        self.spoken_samples = 0  # counter for tests and the meter
        self._callback = _Callback(self._collect)
        self._lib.espeak_SetSynthCallback(self._callback)
        # a voice path of eSpeak is relative, lower case and shorter than 60 characters
        os.chdir(tempfile.gettempdir())

    def _collect(self, wave: int | None, n: int, events) -> int:
        if wave and n > 0:
            self._pcm.append(ctypes.string_at(wave, 2 * n))
            self._count += n
        i = 0
        while events and events[i].type:
            e = events[i]
            if e.type == _PHONEME:
                self._events.append((_PHONEME, e.id.string.decode("utf-8", "replace"), e.sample))
            elif e.type == _WORD:
                self._events.append((_WORD, e.text_position, e.sample))
            i += 1
        return 1 if self._count >= self._limit else 0

    def _definition(self, tag: str) -> bytes:
        if tag not in self._definitions:
            try:
                plain, replaced = _REPLACED.get(tag, (tag, b""))
                language = (self._data / "lang" / VOICE_FILES[plain]).read_bytes()
                variant = (self._data / "voices" / "!v" / "f5").read_bytes()
            except OSError as e:
                raise NotReady("no_espeak") from e
            skip = (b"language", b"name", b"gender", *_REMEMBERING)
            lines = [
                line
                for line in variant.splitlines()
                if line.split()[:1] and line.split()[0] not in skip
            ]
            self._definitions[tag] = b"\n".join(
                [language, replaced, *lines, b"flutter 0", b"echo 0 0", b"roughness 8", b""]
            )
        return self._definitions[tag]

    def _use(self, tag: str, words_per_minute: int) -> None:
        if self._current == (tag, words_per_minute):
            return
        if self._current[0] != tag:
            handle, name = tempfile.mkstemp(prefix="kk", dir=".")
            try:
                with os.fdopen(handle, "wb") as f:
                    f.write(self._definition(tag))
                if self._lib.espeak_ng_SetVoiceByFile(Path(name).name.encode()) != 0:
                    raise EngineFault()
            finally:
                os.unlink(name)
        self._lib.espeak_SetParameter(_RATE, words_per_minute, 0)
        self._current = (tag, words_per_minute)

    @one_at_a_time
    def say(
        self, tag: str, words_per_minute: int, text: str, limit_samples: int = 1 << 30
    ) -> EspeakOutput:
        """Speak `text` with the base voice of `tag`; stops soon after `limit_samples`.

        A longer limit repeats the same beginning.
        """
        self._use(tag, words_per_minute)
        self._pcm, self._events, self._count, self._limit = [], [], 0, limit_samples
        flags = _UTF8
        if tag.startswith("zh"):
            text, flags = spell(text), _UTF8 | _INLINE_PHONEMES
        raw = text.encode("utf-8") + b"\0"
        if self._lib.espeak_Synth(raw, ctypes.c_size_t(len(raw)), 0, 0, 0, flags, None, None) != 0:
            raise EngineFault()
        self.spoken_samples += self._count
        samples = np.frombuffer(b"".join(self._pcm), "<i2")
        phonemes = tuple((str(v), at) for kind, v, at in self._events if kind == _PHONEME)
        words = tuple((int(v), at) for kind, v, at in self._events if kind == _WORD)
        return EspeakOutput(samples, self._count < limit_samples, phonemes, words)

    @one_at_a_time
    def spelled(self, tag: str, words_per_minute: int, text: str) -> str:
        """The phonemes of `text` in eSpeak's own letters, tones as digits."""
        self._use(tag, words_per_minute)
        return "".join(self._phonemes(stand_in(text), 0))

    @one_at_a_time
    def ipa(self, tag: str, text: str) -> str:
        """The phonemes of `text` in IPA with stress marks; "^" ties the letters of one sound,
        blanks stand between words.
        """
        self._use(tag, self._current[1] or 160)
        return " ".join(self._phonemes(text, _IPA_TIED))

    def _phonemes(self, text: str, mode: int) -> list[str]:
        # An utterance stopped at its limit leaves letters unread; only the start of the next one
        # drops them.
        self._lib.espeak_Synth(b" ", ctypes.c_size_t(2), 0, 0, 0, _UTF8, None, None)
        self._lib.espeak_TextToPhonemes.restype = ctypes.c_char_p
        buffer = ctypes.create_string_buffer(text.encode("utf-8"))
        place = ctypes.c_void_p(ctypes.addressof(buffer))
        out = []
        while place.value:
            phonemes = self._lib.espeak_TextToPhonemes(ctypes.byref(place), _UTF8, mode)
            out.append((phonemes or b"").decode("utf-8", "replace"))
        return out
