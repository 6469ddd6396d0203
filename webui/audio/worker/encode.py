"""16-bit mono samples to mp3, Ogg Opus, AAC (ADTS) or FLAC while they come, many streams side by
side. Blind to who listens. Needs PyAV.
"""

import io
from dataclasses import dataclass, field

import av

OK, BAD = 0, 1
OPEN, PUSH, FINISH, CLOSE, OPEN_WHOLE = range(5)  # what is asked; as webui/audio/encoder.py


@dataclass
class Kind:
    container: str
    codec: str
    bit_rate: int = 0  # 0 = the codec's own choice
    options: dict = field(default_factory=dict)  # of the codec
    muxing: dict = field(default_factory=dict)  # of the container


# every frame leaves as soon as it is coded: short frames, no page that waits to be full, no room
# kept for tags that never come
KINDS = {
    "mp3": Kind("mp3", "libmp3lame", 96_000),
    "opus": Kind("ogg", "libopus", 64_000, {"frame_duration": "20"}, {"page_duration": "20000"}),
    "aac": Kind("adts", "aac", 96_000),
    "flac": Kind("flac", "flac", 0, {"frame_size": "1152"}, {"metadata_header_padding": "0"}),
}


class Sink(io.RawIOBase):
    """Where a container writes.

    One that can go back gets its length filled in at the end, and is given out only then.
    """

    def __init__(self, can_seek):
        self._buffer, self._can_seek = io.BytesIO(), can_seek

    def writable(self):
        return True

    def seekable(self):
        return self._can_seek

    def seek(self, at, whence=0):
        return self._buffer.seek(at, whence)

    def tell(self):
        return self._buffer.tell()

    def write(self, data):
        return self._buffer.write(data)

    def take(self):
        data, self._buffer = self._buffer.getvalue(), io.BytesIO()
        return data


class Stream:
    """One sound on its way into one file."""

    def __init__(self, kind, rate, coded_hz, label, is_whole):
        how = KINDS[kind]
        self._rate, self._is_whole, self._at, self._sink = rate, is_whole, 0, Sink(is_whole)
        self._container = av.open(
            self._sink, "w", format=how.container, options={**how.muxing, "flush_packets": "1"}
        )
        self._container.metadata.update({"comment": label} if label else {})
        self._stream = self._container.add_stream(
            how.codec, rate=coded_hz, layout="mono", options=how.options
        )
        if how.bit_rate:
            self._stream.bit_rate = how.bit_rate

    def push(self, data):
        if data:
            frame = av.AudioFrame(format="s16", layout="mono", samples=len(data) // 2)
            frame.planes[0].update(data)
            frame.sample_rate, frame.pts, self._at = self._rate, self._at, self._at + len(data) // 2
            self._mux(frame)
        return b"" if self._is_whole else self._sink.take()

    def finish(self):
        self._mux(None)
        self._container.close()
        return self._sink.take()

    def close(self):
        try:
            self._container.close()
        except (
            av.error.FFmpegError,
            ValueError,
        ):  # one that never got a sample has nothing to close
            return

    def _mux(self, frame):
        for packet in self._stream.encode(frame):
            self._container.mux(packet)


streams = {}


def run(kind, numbers, payload):
    """(state, streams open after it, 0, 0, bytes coded so far). numbers: stream, what is asked,
    rate of the samples and of the file (Hz).
    payload: s16le, or the label.
    """
    key, command, *rates = map(int, numbers)
    try:
        data = _run_command(kind, key, command, rates, payload)
    except (av.error.FFmpegError, KeyError, ValueError, MemoryError):
        streams.pop(key, None)
        return BAD, len(streams)
    return OK, len(streams), 0, 0, data


def _run_command(kind, key, command, rates, payload):
    if command in (OPEN, OPEN_WHOLE):
        streams[key] = Stream(kind, *rates, payload.decode("utf-8"), command == OPEN_WHOLE)
        return b""
    if command == PUSH:
        return streams[key].push(payload)
    stream = streams.pop(key, None)
    if command == FINISH:
        return stream.finish()
    if stream is not None:
        stream.close()
    return b""
