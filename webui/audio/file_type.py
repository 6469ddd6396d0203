"""What kind of sound file these bytes are, by content. Blind to names, and decodes nothing."""

from __future__ import annotations

MAX_PADDING = 8192
# with which a file of the family of QuickTime may begin; older .mov files have no `ftyp`
MOVIE_ATOMS = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")


def sniff(data: bytes) -> str:
    """One of wav, aiff, caf, flac, ogg, mp3, aac, amr, mp4, webm, or "" for anything that is not
    sound we read.
    """
    head = data[:16]
    if head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    for magic, kind in (
        (b"fLaC", "flac"),
        (b"OggS", "ogg"),
        (b"\x1aE\xdf\xa3", "webm"),
        (b"caff", "caf"),
        (b"#!AMR", "amr"),
    ):
        if head.startswith(magic):
            return kind
    if head[4:8] in MOVIE_ATOMS:
        return "mp4"
    at = _after_id3(data)
    while (
        at < min(len(data), MAX_PADDING) and not data[at]
    ):  # some writers pad before the first frame
        at += 1
    if data[at : at + 4] == b"fLaC":
        return "flac"
    if len(data) >= at + 4 and data[at] == 0xFF and data[at + 1] & 0xE0 == 0xE0:
        # bits 1-2 of the second byte are the MPEG layer; 0 there means AAC in ADTS frames
        return "aac" if data[at + 1] & 0xF6 == 0xF0 else "mp3"
    return "mp3" if data[:3] == b"ID3" else ""


def _after_id3(data: bytes) -> int:
    if data[:3] != b"ID3" or len(data) < 10:
        return 0
    size = 0
    for byte in data[6:10]:  # seven bits a byte
        size = size << 7 | byte & 0x7F
    return 10 + size
