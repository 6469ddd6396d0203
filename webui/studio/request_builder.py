"""What was asked for, as a SpeechRequest: names of OpenAI's and the fields that follow from others.

Knows voices and abilities, not jobs.
"""

from __future__ import annotations

from dataclasses import replace

from .. import text
from ..errors import BadInput
from ..store.folder_store import new_id
from ..types import LANGUAGES, VOICE_ENGINES, Abilities, SpeechRequest, Voice, model_of

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
LEFT_OUT = (
    "This model follows no instructions: yours was left out.",
    "这个模型不接受风格指令，已忽略。",
)
NO_TRANSCRIPT = (
    "No transcript of the clip: it was spoken as a cross-lingual clone, by the clip's sound alone.",
    "没有参考文本：本次按跨语种复刻合成，只参考声音。",
)
SHORT_TEXT = (
    (
        "The text is shorter than half of the clip's transcript: it was spoken without the"
        " transcript, as a cross-lingual clone."
    ),
    "文本不到参考文本的一半长：本次未使用参考文本，按跨语种复刻合成。",
)


SHORT_ARRIVED = (
    (
        "The text came while it was spoken, and was over before half of the clip's transcript,"
        " which nobody could know: it was spoken with the transcript. Send a short text in one"
        " piece."
    ),
    (
        "文本是边写边读的，最后不到参考文本的一半长；开始时无从得知，因此仍用了参考文本。"
        "短文本请一次发完。"
    ),
)


def check_mode(mode: str, about: Abilities) -> None:
    if mode not in ("auto", *about.modes):
        raise BadInput(
            f"The engine {about.name} cannot do the mode {mode}.",
            f"引擎 {about.name} 做不到模式 {mode}。",
            param="mode",
            code="bad_mode",
        )


def known_language(language: str) -> str:
    """One of LANGUAGES, or "auto", for a BCP 47 tag in any case: zh for zh-CN.

    Raises BadInput for what is none of them.
    """
    tag = (language.strip() or "auto").replace("_", "-").partition("-")[0].lower()
    if tag not in ("auto", *LANGUAGES):
        raise BadInput(
            f"Unknown language “{language[:16]}”. Use one of: auto, {', '.join(LANGUAGES)}.",
            f"不认识的语言「{language[:16]}」，可用：auto、{'、'.join(LANGUAGES)}。",
            param="language",
            code="bad_language",
        )
    return tag


def with_known_words(
    about: Abilities, request: SpeechRequest
) -> tuple[SpeechRequest, list[tuple[str, str]]]:
    """Of an engine that reads transcripts: a zero-shot request without one as a cross-lingual one,
    and a note that says so. An engine's own voices bring their words with them.
    """
    mode = "instruct" if request.instruction else "cross_lingual"
    if request.transcript or request.voice.startswith(PRESET) or mode not in about.modes:
        return request, []
    return replace(request, mode=mode), [NO_TRANSCRIPT]


def requested_language(text_in: str, language: str) -> str:
    """That of the mark which a text begins with, else `language` as `known_language` has it.

    Raises BadInput.
    """
    return text.marked_language(text_in) or known_language(language)


def with_fitting_mode(
    about: Abilities, request: SpeechRequest
) -> tuple[SpeechRequest, list[tuple[str, str]]]:
    """Without the transcript where the text is shorter than half of it, and a note that says so: a
    language model of CosyVoice that has read much more than it shall speak tends to garble it
    (specification "First contact", section 2).
    """
    rule, mode = about.segmentation, "instruct" if request.instruction else "cross_lingual"
    if rule is None or request.mode != "zero_shot" or mode not in about.modes:
        return request, []
    length = text.units("".join(request.segments), rule)
    known = text.without_marks(request.transcript)
    if not known or length >= text.units(known, rule) / 2:
        return request, []
    return replace(request, mode=mode, transcript=""), [SHORT_TEXT]


def late_notes(about: Abilities, request: SpeechRequest) -> list[tuple[str, str]]:
    """As `with_fitting_mode`, of a text that was known as a whole only after it was spoken."""
    return [SHORT_ARRIVED] if with_fitting_mode(about, request)[1] else []


def drop_unsupported_instruction(
    about: Abilities, voice: Voice, mode: str, instruction: str
) -> tuple[str, str, list[tuple[str, str]]]:
    """mode and instruction where the choice was left to us, and what the caller must know: an
    engine that follows no instruction would read it aloud, and its own voices speak in the mode
    that they were made for.
    """
    notes = []
    if mode == "auto" and instruction.strip() and "instruct" not in about.modes:
        instruction, notes = "", [LEFT_OUT]
    if (
        mode == "auto"
        and not instruction.strip()
        and voice.id.startswith(PRESET)
        and "preset" in about.modes
    ):
        mode = "preset"
    return mode, instruction, notes


def build_request(
    about: Abilities,
    text_in: str,
    voice: Voice,
    mode: str,
    instruction: str,
    language: str,
    speed: float,
    seed: int,
    priority: int = 0,
    model: str = "",
) -> SpeechRequest:
    """about: of the engine, which may not follow an instruction in every mode. model: as the caller
    names it. Raises BadInput.
    """
    language, instruction = (
        requested_language(text_in, language),
        text.without_prompt_marks(instruction),
    )
    chosen = _mode(mode, instruction, text_in, voice)
    has_words = bool(text.without_marks(voice.transcript).strip())  # an engine must see its marks
    is_told = chosen == "instruct" or (chosen == "zero_shot" and about.told_clones)
    return SpeechRequest(
        new_id("take"),
        text_in,
        voice.id,
        chosen,
        instruction if is_told else "",
        language,
        speed,
        seed,
        priority,
        transcript=voice.transcript if chosen == "zero_shot" and has_words else "",
        voice_engine=voice_engine_of(about, model),
    )


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


def _mode(mode: str, instruction: str, text_in: str, voice: Voice) -> str:
    """`auto` of the API: instruct when told how, cross-lingual when languages differ or nothing is
    known of the clip, else zero-shot.
    """
    if mode != "auto":
        return mode
    if instruction.strip():
        return "instruct"
    spoken = text.marked_language(text_in) or text.detect(text.without_marks(text_in))
    if not voice.transcript or (voice.language and voice.language != spoken):
        return "cross_lingual"
    return "zero_shot"
