"""What was asked for, as a SpeechRequest: names of OpenAI's and the fields that follow from others.

Knows voices and abilities, not jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import text
from ..errors import BadInput
from ..messages import message
from ..store.folder_store import new_id
from ..types import LANGUAGES, VOICE_ENGINES, Abilities, SpeechRequest, Voice, model_of

Note = tuple[str, str]  # (English, Chinese)
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
# the names OpenAI gives its voices -> ours that come nearest; fixed, so that a script sounds the
# same for ever
OPENAI_VOICES = {
    "alloy": "starter-en-mid",
    "ash": "starter-en-low",
    "ballad": "starter-zh-breathy",
    "cedar": "starter-zh-low",
    "coral": "starter-en-bright",
    "echo": "starter-en-low",
    "fable": "starter-en-mid",
    "marin": "starter-zh-high",
    "nova": "starter-zh-high",
    "onyx": "starter-zh-low",
    "sage": "starter-zh-breathy",
    "shimmer": "starter-en-bright",
    "verse": "starter-en-mid",
}
BACKGROUND = 10  # priority of work that nobody listens to
PRESET = "preset-"  # what ids of an engine's own voices begin with
LEFT_OUT = message("note.no_instructions")
NO_TRANSCRIPT = message("note.no_transcript")
SHORT_TEXT = message("note.short_text")


SHORT_ARRIVED = message("note.short_text_arrived")


def check_mode(mode: str, about: Abilities) -> None:
    if mode not in ("auto", *about.modes):
        raise BadInput("bad_mode.engine", name=about.name, mode=mode, param="mode")


def known_language(language: str) -> str:
    """One of LANGUAGES, or "auto", for a BCP 47 tag in any case: zh for zh-CN.

    Raises BadInput for what is none of them.
    """
    tag = (language.strip() or "auto").replace("_", "-").partition("-")[0].lower()
    if tag not in ("auto", *LANGUAGES):
        raise BadInput(
            "bad_language.unknown", language=language[:16], languages=LANGUAGES, param="language"
        )
    return tag


def requested_language(text_in: str, language: str) -> str:
    """That of the mark which a text begins with, else `language` as `known_language` has it.

    Raises BadInput.
    """
    return text.marked_language(text_in) or known_language(language)


def build_request(
    about: Abilities,
    text_in: str,
    voice: Voice,
    language: str,
    speed: float,
    seed: int,
    priority: int = 0,
    model: str = "",
) -> SpeechRequest:
    """The request in no mode yet: choose_mode follows when its text was normalised. model: as the
    caller names it. Raises BadInput.
    """
    return SpeechRequest(
        new_id("take"),
        text_in,
        voice.id,
        language=requested_language(text_in, language),
        speed=speed,
        seed=seed,
        priority=priority,
        voice_engine=voice_engine_of(about, model),
    )


def choose_mode(
    about: Abilities,
    request: SpeechRequest,
    voice: Voice,
    mode: str,
    instruction: str,
    reads_transcripts: bool = True,
    is_text_whole: bool = True,
    notes: Sequence[Note] = (),
) -> tuple[SpeechRequest, list[Note], list[Note]]:
    """Decides in which mode a request is spoken, and what its engine is given for that; everything
    after this only reads it.

    `auto` is preset for an engine's own voices, instruct when told how, cross-lingual when the
    languages differ or nothing is known of the clip, else zero-shot. Zero-shot needs a transcript
    where an engine reads one, and one that is not longer than twice the text: a language model of
    CosyVoice that has read much more than it shall speak tends to garble it (specification "First
    contact", section 2). Without, it is instruct or cross-lingual.

    request: its segments are known. voice: with the transcript that counts. is_text_whole: else
    nobody knows yet how long the text will be, and the same text must sound the same whenever it
    ends. notes: why the transcript was left out, where that was said. Returns the request, what
    the caller must know, and what its take keeps of it, `notes` first. Raises BadInput.
    """
    left_out: list[Note] = []
    if mode == "auto" and instruction.strip() and "instruct" not in about.modes:
        instruction, left_out = "", [LEFT_OUT]  # else it would be read aloud
    is_own_voice = voice.id.startswith(PRESET)
    if mode == "auto" and not instruction.strip() and is_own_voice and "preset" in about.modes:
        mode = "preset"
    instruction = text.without_prompt_marks(instruction)
    if mode == "auto":
        text_language = text.marked_language(request.text) or text.detect(
            text.without_marks(request.text)
        )
        is_foreign = not voice.transcript or (voice.language and voice.language != text_language)
        is_told = bool(instruction.strip())
        mode = "instruct" if is_told else "cross_lingual" if is_foreign else "zero_shot"
    if not (mode == "instruct" or (mode == "zero_shot" and about.told_clones)):
        instruction = ""
    has_words = bool(text.without_marks(voice.transcript).strip())
    transcript = voice.transcript if mode == "zero_shot" and has_words else ""
    chosen = replace(request, mode=mode, instruction=instruction, transcript=transcript)
    fallback_mode = _mode_without_transcript(chosen)
    if mode == "zero_shot" and fallback_mode in about.modes:
        if is_text_whole and _is_short(about, chosen):
            chosen, notes = replace(chosen, mode=fallback_mode, transcript=""), [*notes, SHORT_TEXT]
        elif reads_transcripts and not transcript and not is_own_voice:
            chosen, notes = replace(chosen, mode=fallback_mode), notes or [NO_TRANSCRIPT]
    return chosen, left_out, list(notes)


def late_notes(about: Abilities, request: SpeechRequest) -> list[Note]:
    """What the caller must know of a text that was known as a whole only after it was spoken."""
    is_late = request.mode == "zero_shot" and _mode_without_transcript(request) in about.modes
    return [SHORT_ARRIVED] if is_late and _is_short(about, request) else []


def _mode_without_transcript(request: SpeechRequest) -> str:
    return "instruct" if request.instruction else "cross_lingual"


def _is_short(about: Abilities, request: SpeechRequest) -> bool:
    """The text is shorter than half of the transcript."""
    rule, transcript = about.segmentation, text.without_marks(request.transcript)
    if rule is None or not transcript:
        return False
    return text.units("".join(request.segments), rule) < text.units(transcript, rule) / 2


def voice_engine_of(about: Abilities, model: str) -> str:
    """Which of an engine's two voices a model's name means: builtin-instant, builtin-natural; ""
    where it leaves the choice.
    """
    return next((kind for kind in VOICE_ENGINES if model in model_names(about, kind)), "")


def model_names(about: Abilities, *kinds: str) -> tuple[str, ...]:
    """Names of the engine's voices, each a model to who asks for it."""
    return tuple(model_of(about.name, kind) for kind in kinds if about.voice_engines)


def listed_names(about: Abilities) -> dict[str, bool]:
    """Those of them that are worth a line in a list of models -> whether a request can have that
    voice now. None where there is one only.
    """
    if about.natural not in ("starting", "ready", "slow"):
        return {}
    return {model_names(about, kind)[0]: kind in about.voice_engines for kind in VOICE_ENGINES}
