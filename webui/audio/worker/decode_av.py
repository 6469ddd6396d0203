"""Sound in containers libsndfile does not open: webm and mkv, mp4, m4a and mov, raw AAC; pictures
in them are passed over. Needs PyAV; ImportError without it.
"""

import io

DEMUXERS = {"webm": "matroska", "mp4": "mov"}  # the other kinds carry the same name there


def read_av(kind, payload, gather):
    """Decode the first sound track into `gather`.

    The demuxer is named, so that no playlist or network format can be reached.
    """
    import av
    from decode import NoSound, Unreadable

    try:
        with av.open(
            io.BytesIO(payload), format=DEMUXERS.get(kind, kind), metadata_errors="ignore"
        ) as container:
            if not container.streams.audio:
                raise NoSound if container.streams.video else Unreadable
            gather.n_tracks = len(container.streams.audio)
            _drain(container, gather, av)
    except av.error.FFmpegError as e:
        if not gather.n_read:
            raise Unreadable from e


def _drain(container, gather, av):
    resampler = None
    for frame in container.decode(audio=0):
        if resampler is None:
            gather.begin(frame.sample_rate, len(frame.layout.channels))
            # float, channels in planes, at the rate and layout of the first frame whatever later
            # frames claim
            resampler = av.AudioResampler(
                format="fltp", layout=frame.layout, rate=frame.sample_rate
            )
        for part in resampler.resample(frame):
            gather.add(part.to_ndarray().T)
