"""Sound file bytes to mono float32.

Counts sound while it decodes, so a small file that unpacks to hours stops after the limit.
"""

import io

import numpy as np
import soundfile
import soxr

OK, BAD, TOO_LARGE, NO_READER, NO_SOUND, FIRST_TRACK = range(6)
# nothing in a voice lies above; higher rates are brought down while they are read
MAX_RATE_HZ = 48_000
KEPT_CHANNELS, MAX_CHANNELS = 8, 64
MIN_SOUND_S = 0.05
# the mean of channels this much weaker than the loudest one means that they cancel, or that one is
# silent
CANCELLED_RATIO = 0.6


class TooMuch(Exception):
    pass


class Unreadable(Exception):
    pass


class NoSound(Exception):
    """A video that can be read and has no sound track."""


def run(kind, numbers, payload):
    """(state, rate, source rate, channels, mono float32 bytes). numbers[0]: most seconds of
    sound.
    """
    try:
        gather = Gather(numbers[0])
        if kind in ("webm", "mp4", "aac", "amr"):
            from decode_av import read_av

            read_av(kind, payload, gather)
        else:
            _read_soundfile(kind, payload, gather)
        mono = gather.mono()
    except (TooMuch, MemoryError):
        return (TOO_LARGE,)
    except ImportError:
        return (NO_READER,)
    except NoSound:
        return (NO_SOUND,)
    except (
        Unreadable,
        soundfile.SoundFileError,
        OSError,
        ValueError,
        RuntimeError,
        OverflowError,
        ZeroDivisionError,
    ):
        return (BAD,)
    return (
        FIRST_TRACK if gather.n_tracks > 1 else OK,
        gather.rate,
        gather.source_hz,
        gather.channels,
        mono.astype("<f4", copy=False).tobytes(),
    )


def _read_soundfile(kind, payload, gather):
    try:
        sound = soundfile.SoundFile(io.BytesIO(payload))
    except (soundfile.SoundFileError, TypeError):
        from decode_av import read_av  # a codec libsndfile lacks inside a container it knows

        read_av(kind, payload, gather)
        return
    with sound:
        gather.begin(sound.samplerate, sound.channels)
        block = max(256, 8192 // sound.channels)  # small: what a broken end spoils is one block
        while True:
            try:
                samples = sound.read(block, dtype="float32", always_2d=True)
            except (
                soundfile.SoundFileError
            ):  # the file breaks off: what came before may still be of use
                break
            if not len(samples):
                break
            gather.add(samples)


class Gather:
    """Blocks of sound, brought to at most MAX_RATE_HZ, until `max_s` seconds are exceeded."""

    def __init__(self, max_s):
        self.max_s, self.blocks, self.n_read, self.n_broken = max_s, [], 0, 0
        self.rate = self.source_hz = self.channels = 0
        self.n_tracks = 1

    def begin(self, rate, channels):
        if not (4000 <= rate <= 384_000 and 1 <= channels <= MAX_CHANNELS):
            raise Unreadable
        self.source_hz, self.channels, self.rate = (
            int(rate),
            int(channels),
            int(min(rate, MAX_RATE_HZ)),
        )
        self.max_frames = int((self.max_s + 0.5) * rate)  # coders pad a full minute a little
        n_channels = min(channels, KEPT_CHANNELS)
        self._down = (
            soxr.ResampleStream(rate, MAX_RATE_HZ, n_channels, dtype="float32")
            if rate > MAX_RATE_HZ
            else None
        )

    def add(self, block):
        """block: float32 (frames, channels)."""
        self.n_read += len(block)
        if self.n_read > self.max_frames:
            raise TooMuch
        block = block[:, :KEPT_CHANNELS]
        fine = np.isfinite(block)
        if not fine.all():
            self.n_broken += int((~fine).any(axis=1).sum())
            block = np.where(fine, block, np.float32(0))
        self.blocks.append(self._down.resample_chunk(block) if self._down else np.array(block))

    def mono(self):
        """(n,) float32 within -1..1: the mean of the channels, or the loudest one where the mean
        would cancel.
        """
        if self.n_read < MIN_SOUND_S * max(self.source_hz, 1) or self.n_broken > 0.01 * self.n_read:
            raise Unreadable
        if self._down:
            self.blocks.append(
                self._down.resample_chunk(
                    np.zeros((0, self.blocks[0].shape[1]), np.float32), last=True
                )
            )
        sound = np.concatenate(self.blocks)
        self.blocks.clear()
        mixed = sound.mean(axis=1)
        if sound.shape[1] > 1:
            power = np.einsum("nc,nc->c", sound, sound)
            loudest = int(np.argmax(power))
            if np.dot(mixed, mixed) < CANCELLED_RATIO**2 * power[loudest]:
                mixed = sound[:, loudest]
        if not np.isfinite(power_peak := float(np.abs(mixed).max())):
            raise Unreadable
        return np.ascontiguousarray(mixed / power_peak if power_peak > 1 else mixed, np.float32)
