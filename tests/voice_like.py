"""Sound that behaves like speech (syllables of a moving pitch, hisses, closures, pauses), for tests
that need a voice but no recording.
"""

import io

import numpy as np
import soundfile

from webui.audio import Clip

FORMANTS = (
    (730, 1090, 2440, 3700),
    (270, 2290, 3010, 3900),
    (570, 840, 2410, 3500),
    (440, 1020, 2240, 3600),
    (660, 1720, 2410, 3800),
)


def voice_like(
    seconds=6.0, rate=24000, seed=0, f0_hz=140.0, lead_s=0.25, tail_s=0.25, rms=0.08, floor=2e-4
):
    """Clip of `seconds`: phrases of five syllables, 0.3 s apart, silence at both ends, a faint
    steady floor.
    """
    rng = np.random.default_rng(seed)
    n = int(seconds * rate)
    x = np.zeros(n)
    at, count = lead_s, 0
    while at + 0.26 < seconds - tail_s:
        _hiss(x, rate, at, rng)
        _vowel(x, rate, at + 0.05, rng, f0_hz * (1.15 - 0.06 * (count % 5)))
        count += 1
        at += 0.25 + (0.30 if count % 5 == 0 else 0.02)
    x *= rms / max(np.sqrt(np.mean(x**2)), 1e-9)
    return Clip((x + floor * rng.standard_normal(n)).astype(np.float32), rate)


def _vowel(x, rate, at, rng, f0):
    t = np.arange(int(0.2 * rate)) / rate
    pitch = f0 * (1 + 0.08 * np.sin(2 * np.pi * (2.5 * t + rng.random())))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    formants = FORMANTS[rng.integers(len(FORMANTS))]
    y = np.zeros(len(t))
    for k in range(1, int(min(9000, rate / 2 - 200) / f0)):
        f = k * f0
        gain = sum(
            1 / (1 + ((f - c) / (60 + 0.05 * c)) ** 2) * 0.6**i for i, c in enumerate(formants)
        ) + 0.02 / (1 + f / 2000)
        y += gain * np.sin(k * phase + k * k * 0.3)
    rise = np.minimum(1, np.minimum(t / 0.02, (t[-1] - t) / 0.03))
    x[int(at * rate) : int(at * rate) + len(t)] += y * np.sin(np.pi / 2 * np.clip(rise, 0, 1)) ** 2


def _hiss(x, rate, at, rng):
    n = int(0.05 * rate)
    noise = np.diff(rng.standard_normal(n + 1)) * 0.12 * np.hanning(n)
    x[int(at * rate) : int(at * rate) + n] += noise


def noisy(clip, snr_db, seed=1):
    """White noise added, `snr_db` below the mean power of the clip."""
    level = np.sqrt(np.mean(clip.samples.astype(np.float64) ** 2)) * 10 ** (-snr_db / 20)
    return clip.with_samples(
        clip.samples
        + level * np.random.default_rng(seed).standard_normal(len(clip.samples)).astype(np.float32)
    )


def echoing(clip, t60_s, seed=2):
    """As in a room where sound takes `t60_s` to fall by 60 dB, direct sound and room equally
    strong.
    """
    n = int(t60_s * clip.rate)
    room = np.random.default_rng(seed).standard_normal(n) * 10 ** (-3 * np.arange(n) / n)
    room[: int(0.004 * clip.rate)] = 0
    room /= np.sqrt(np.sum(room**2))
    room[0] = 1
    size = len(clip.samples) + n
    wet = np.fft.irfft(np.fft.rfft(clip.samples, size) * np.fft.rfft(room, size), size)[
        : len(clip.samples)
    ]
    return clip.with_samples(wet * np.sqrt(np.mean(clip.samples**2) / np.mean(wet**2)))


def file_of(clip_or_samples, rate=None, form="WAV", kind="PCM_16"):
    """Bytes of a sound file. samples: (n,) or (n, channels)."""
    samples = getattr(clip_or_samples, "samples", clip_or_samples)
    out = io.BytesIO()
    soundfile.write(out, samples, rate or clip_or_samples.rate, format=form, subtype=kind)
    return out.getvalue()


def container_of(clip, form, codec, rate):
    """Bytes of `clip` in a container of PyAV: ("webm", "libopus"), ("mp4", "aac"), ("adts",
    "aac").
    """
    import av

    from webui.audio import resample

    samples = (np.clip(resample(clip.samples, clip.rate, rate), -1, 1) * 32767).astype(np.int16)
    out = io.BytesIO()
    with av.open(out, "w", format=form) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)
    return out.getvalue()


def video_of(form, sounds, codec="aac", pictures="mpeg4", seconds=2.0):
    """Bytes of a video of grey pictures in a container of PyAV, with one sound track for each clip
    of `sounds`.
    """
    import av

    out = io.BytesIO()
    with av.open(out, "w", format=form) as container:
        film = container.add_stream(pictures, rate=10)
        film.width = film.height = 64
        film.pix_fmt = "yuv420p"
        tracks = [container.add_stream(codec, rate=48000, layout="mono") for _ in sounds]
        for _ in range(int(seconds * 10)):
            for packet in film.encode(
                av.VideoFrame.from_ndarray(np.full((64, 64), 90, np.uint8), "gray")
            ):
                container.mux(packet)
        for packet in film.encode(None):
            container.mux(packet)
        for track, clip in zip(tracks, sounds):
            samples = _at_48_khz(clip)
            frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
            frame.sample_rate = 48000
            for packet in [*track.encode(frame), *track.encode(None)]:
                container.mux(packet)
    return out.getvalue()


def _at_48_khz(clip):
    from webui.audio import resample

    return (np.clip(resample(clip.samples, clip.rate, 48000), -1, 1) * 32767).astype(np.int16)
