"""kaikou.v1.Voices: messages <-> the library, by the rules of /v1/audio/voices."""

from __future__ import annotations

from google.protobuf.json_format import ParseDict
from starlette.concurrency import run_in_threadpool

from ...errors import BadInput, ClipTooLarge
from ...proto import kaikou_pb2 as pb
from ...proto.kaikou_pb2_grpc import VoicesServicer
from ...studio import Studio
from ...types import Voice, finite
from ..voices import MAX_SAMPLE, chosen_window, voice_info
from .call import Call


class VoicesService(VoicesServicer):
    def __init__(self, studio: Studio):
        self._studio = studio

    async def List(self, request: pb.ListVoices, call: Call) -> pb.VoiceList:  # noqa: N802
        voices = await run_in_threadpool(self._studio.voices.list, call.owner)
        return pb.VoiceList(voices=[self._message(v) for v in voices])

    async def Get(self, request: pb.GetVoice, call: Call) -> pb.Voice:  # noqa: N802
        voice = await run_in_threadpool(self._studio.voices.get, call.owner, request.id)
        return self._message(voice)

    async def Delete(self, request: pb.DeleteVoice, call: Call) -> pb.VoiceDeleted:  # noqa: N802
        await run_in_threadpool(self._studio.voices.delete, call.owner, request.id)
        return pb.VoiceDeleted(id=request.id)

    async def Create(self, request: pb.CreateVoice, call: Call) -> pb.VoiceCreated:  # noqa: N802
        if not request.recording:
            raise BadInput("bad_field.missing", param="recording")
        if len(request.recording) > MAX_SAMPLE:
            raise ClipTooLarge(param="recording")
        start_s, end_s = (
            finite(getattr(request, name), name) if request.HasField(name) else None
            for name in ("start_s", "end_s")
        )
        window = chosen_window(start_s, end_s)
        voice, draft = await run_in_threadpool(
            self._studio.voices.add,
            call.owner,
            request.recording,
            request.name,
            request.transcript,
            request.language,
            request.denoise,
            request.consent,
            window,
        )
        created = pb.VoiceCreated(
            voice=self._message(voice),
            start_s=draft.start_s,
            end_s=draft.end_s,
            notes=[pb.Note(message=en, message_zh=zh) for en, zh in draft.notes],
        )
        created.report.update(draft.report.to_json())
        return created

    def _message(self, voice: Voice) -> pb.Voice:
        info = voice_info(voice, self._studio.engine_names())
        return ParseDict(info, pb.Voice(), ignore_unknown_fields=True)
