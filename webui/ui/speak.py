"""The tab Speak: the voice card, the text card and the takes.

Draws widgets and wires them; what they mean is the studio's.
"""

from __future__ import annotations

import contextlib

import gradio as gr

from ..errors import BadInput, KaikouError
from ..studio import BY_PAGE
from ..types import LANGUAGES, MODES, VOICE_ENGINES
from . import view_models
from .audio_input import clip_view
from .auth import owner_of
from .html_part import as_json, number, part
from .i18n import T
from .uploads import Uploads
from .voices import voice_list

PROFILES = ("fast", "even", "smooth")
QUIET = {"show_progress": "hidden", "api_visibility": "private"}


def voice_card(starters: list[dict]) -> dict[str, gr.components.Component]:
    with gr.Column(elem_classes="kk-card", elem_id="kk-voice"):
        part("title_voice", {"t": "voice.title", "s": "voice.hint"})
        gr.Radio(
            [(T("voice.new"), "new"), (T("voice.saved"), "saved")],
            value="new",
            label=T("voice.title"),
            show_label=False,
            container=False,
            interactive=True,
            elem_classes=["kk-seg", "kk-sm"],
            elem_id="kk-source",
        )
        picker = part("picker", starters, events=("act",), elem_id="kk-picker")
        part("recorder", elem_id="kk-ref")
        health = part("health", events=("act",), elem_id="kk-health")
        transcript = gr.Textbox(
            label=T("tr.label"),
            info=T("tr.info"),
            placeholder=T("tr.place"),
            lines=2,
            elem_id="kk-transcript",
            elem_classes="kk-entry",
            interactive=True,
        )
        part("fit", elem_id="kk-fit")
        consent = gr.Checkbox(
            value=False,
            label=T("consent.label"),
            info=T("consent.why"),
            elem_id="kk-consent",
            elem_classes="kk-check",
            container=False,
            interactive=True,
        )
        with gr.Row(elem_classes="kk-saverow", elem_id="kk-saverow"):
            name = gr.Textbox(
                placeholder=T("save.place"),
                label=T("save.name"),
                show_label=False,
                scale=3,
                elem_id="kk-savename",
                elem_classes="kk-entry",
                container=False,
                interactive=True,
                max_length=60,
            )
            save = gr.Button(
                T("save.btn"), scale=1, min_width=96, elem_classes="kk-btn", elem_id="kk-save"
            )
        part("need", elem_id="kk-need")
    return {
        "picker": picker,
        "health": health,
        "transcript": transcript,
        "consent": consent,
        "name": name,
        "save": save,
    }


def text_card() -> dict[str, gr.components.Component]:
    with gr.Column(elem_classes="kk-card", elem_id="kk-textcard"):
        mode = gr.Radio(
            [(T(f"mode.{m}"), m) for m in MODES],
            value="zero_shot",
            label=T("mode.label"),
            show_label=False,
            container=False,
            interactive=True,
            elem_id="kk-mode",
            elem_classes="kk-seg",
        )
        part("modehint")
        text = gr.Textbox(
            label=T("text.label"),
            placeholder=T("text.place"),
            lines=3,
            max_lines=14,
            elem_id="kk-text",
            elem_classes="kk-entry",
            interactive=True,
        )
        part("under", elem_id="kk-under")
        part("style", elem_id="kk-style")
        instruct = gr.Textbox(
            label=T("style.instruct"),
            placeholder=T("style.instruct.place"),
            elem_id="kk-instruct",
            elem_classes="kk-entry",
            max_lines=1,
            interactive=True,
        )
        voice_engine = gr.Radio(  # the page hides it where there is one voice only
            [(T(f"ve.{v}"), v) for v in ("auto", *VOICE_ENGINES)],
            value="auto",
            label=T("ve.label"),
            info=T("ve.info"),
            elem_classes=["kk-seg", "kk-sm"],
            elem_id="kk-voiceengine",
            interactive=True,
        )
        with gr.Accordion(T("adv.title"), open=False, elem_classes="kk-adv"):
            with gr.Row(elem_classes="kk-advgrid"):
                speed = gr.Slider(
                    0.5,
                    2.0,
                    1.0,
                    step=0.05,
                    label=T("adv.speed"),
                    info=T("adv.speed.info"),
                    elem_id="kk-speed",
                    elem_classes="kk-entry",
                    interactive=True,
                )
                with gr.Column(min_width=0):
                    with gr.Row(elem_classes="kk-seedrow"):
                        seed = gr.Textbox(
                            "",
                            label=T("adv.seed"),
                            info=T("adv.seed.info"),
                            elem_id="kk-seed",
                            elem_classes="kk-entry",
                            scale=3,
                            min_width=80,
                            interactive=True,
                        )
                        dice = gr.Button(
                            T("adv.dice"),
                            elem_classes=["kk-btn", "kk-dice"],
                            scale=0,
                            min_width=44,
                            elem_id="kk-dice",
                        )
                    random = gr.Checkbox(
                        True,
                        label=T("adv.random"),
                        elem_id="kk-random",
                        elem_classes="kk-check",
                        container=False,
                        interactive=True,
                    )
                language = gr.Dropdown(  # the page hides those that the engine does not speak
                    [
                        (T("adv.lang.auto"), "auto"),
                        *((T(f"lang.{code}"), code) for code in LANGUAGES),
                    ],
                    value="auto",
                    label=T("adv.lang"),
                    elem_id="kk-language",
                    elem_classes="kk-entry",
                    interactive=True,
                )
            profile = gr.Radio(
                [(T(f"adv.hop.{p}"), p) for p in PROFILES],
                value="fast",
                label=T("adv.hop"),
                info=T("adv.hop.info"),
                elem_classes=["kk-seg", "kk-sm"],
                elem_id="kk-hop",
                interactive=True,
            )
    dice.click(None, js="() => kaikou.dice()", api_visibility="private")
    return {
        "mode": mode,
        "text": text,
        "instruct": instruct,
        "speed": speed,
        "seed": seed,
        "random": random,
        "language": language,
        "profile": profile,
        "voice_engine": voice_engine,
    }


def tab(studio) -> dict[str, gr.components.Component]:
    starters = [
        view_models.voice(v) for v in studio.voices.list("-")
    ]  # there from the first paint, so that nothing moves when the visitor's own arrive
    with (
        gr.Tab(T("tab.speak"), id="speak", elem_id="kk-tab-speak"),
        gr.Column(elem_classes="kk-page"),
        gr.Row(elem_classes="kk-cols"),
    ):
        with gr.Column():
            left = voice_card(starters)
        with gr.Column():
            right = text_card()
            takes = part("takes", [], events=("act",), elem_id="kk-takes")
    return {**left, **right, "takes": takes}


def wire(studio, uploads: Uploads, w: dict[str, gr.components.Component]) -> None:
    """Events of the tab.

    Handlers answer with JSON of the part they redraw; a failure is a sentence in it, never a stack
    trace.
    """

    def draft_act(event: gr.EventData, request: gr.Request):
        data, owner = event._data, owner_of(request)
        try:
            if data["op"] == "change":
                window = tuple(number(x) for x in data["window"])
                wish = {
                    "clean": number(data["clean"]),
                    "gain": data["gain"] is True,
                    "varying": data["varying"] is True,
                }
                draft = studio.drafts.change(owner, str(data["id"]), window=window, **wish)
                draft = view_models.draft(draft, str(data["clip"])) | {"n": int(number(data["n"]))}
                return as_json(draft), gr.skip(), gr.skip()
            if data["op"] == "clip":
                return clip_in(data, owner)
            if data["op"] == "save":
                consent = BY_PAGE if data.get("consent") is True else ""
                voice = studio.drafts.save(
                    owner,
                    str(data["id"]),
                    str(data["name"]),
                    str(data.get("transcript") or ""),
                    consent,
                )
                saved = as_json({"saved": voice.id, "list": voice_list(studio, owner)})
                return gr.skip(), saved, gr.skip()
            raise BadInput("bad_input.request")
        except KaikouError as error:
            fault = as_json({"fault": view_models.fault(error), "n": data.get("n", 0)})
            return fault, gr.skip(), gr.skip()

    def clip_in(data: dict, owner: str):
        """A file was brought or a recording made.

        Only one that can be read takes the place of the clip that is there, and asks for consent
        anew.
        """
        view = clip_view(studio, uploads, owner, data)
        return as_json(view), gr.skip(), gr.skip() if "error" in view else False

    def voices_now(request: gr.Request):
        """Another engine brings voices of its own."""
        return as_json(voice_list(studio, owner_of(request)))

    def take_act(event: gr.EventData, request: gr.Request):
        data, owner = event._data, owner_of(request)
        fault = {}
        try:
            if data["op"] == "keep":
                studio.takes.keep(owner, int(number(data["days"])))
        except KaikouError as error:
            fault = {"fault": view_models.fault(error)}
        return as_json(fault | view_models.takes(studio, owner, studio.takes.list(owner)))

    def add_take(event: gr.EventData, request: gr.Request):
        """The take that was just made, without those that the page has."""
        data, owner, takes = event._data or {}, owner_of(request), []
        with contextlib.suppress(KaikouError):  # stopped before there was a take
            takes = [studio.takes.get_visible(owner, str(data.get("job")))]
            if data.get("first") is not None:
                first_sound_ms = number(data["first"])
                takes = [studio.takes.note_first_sound(owner, takes[0].id, first_sound_ms)]
        return as_json(view_models.takes(studio, owner, takes))

    w["health"].act(
        draft_act,
        outputs=[w["health"], w["picker"], w["consent"]],
        trigger_mode="multiple",
        concurrency_limit=4,
        **QUIET,
    )
    w["picker"].act(
        voices_now, outputs=[w["picker"]], trigger_mode="multiple", concurrency_limit=4, **QUIET
    )
    w["takes"].act(
        take_act, outputs=[w["takes"]], trigger_mode="multiple", concurrency_limit=1, **QUIET
    )
    w["save"].click(
        None,
        inputs=[w["name"], w["transcript"], w["consent"]],
        js="(...v) => kaikou.saveVoice(...v)",
        api_visibility="private",
    )
    # No Python on the way to the first sound: the bar's own event gathers the widgets and hands
    # them to the player.
    names = (
        "transcript",
        "consent",
        "mode",
        "text",
        "instruct",
        "speed",
        "seed",
        "random",
        "language",
        "profile",
        "voice_engine",
    )
    w["player"].generate(
        None,
        inputs=[w[n] for n in names],
        js=f"({', '.join(names)}) => kaikou.speak({{{', '.join(names)}}})",
        api_visibility="private",
    )
    # After the last sample an ordinary Gradio event brings the take into the list: off the hot
    # path, so a queue is fine.
    w["player"].done(
        add_take, outputs=[w["takes"]], trigger_mode="multiple", concurrency_limit=8, **QUIET
    )
    form = [w[n] for n in names if n not in ("transcript", "consent")]
    w["form"].restore(
        None,
        inputs=form,
        outputs=form,
        js="(...now) => kaikou.restored(...now)",
        api_visibility="private",
    )
    saved_fields = [x for x in form if x is not w["text"]]
    gr.on(
        [x.change for x in saved_fields],
        None,
        inputs=form,
        js="(...now) => kaikou.rememberForm(...now)",
        api_visibility="private",
    )


def load(studio, request: gr.Request) -> tuple[str, str, str]:
    """What a page shows when it opens: engine, voices, takes."""
    owner = owner_of(request)
    return (
        as_json(studio.status()),
        as_json(voice_list(studio, owner)),
        as_json(view_models.takes(studio, owner, studio.takes.list(owner))),
    )
