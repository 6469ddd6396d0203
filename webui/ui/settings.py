"""The tab Settings: only what acts at once.

Looks and playback live in the browser, retention and the file label in the studio.
"""

from __future__ import annotations

import gradio as gr

from ..types import FOREVER_DAYS
from .auth import owner_of
from .html_part import part
from .i18n import T

QUIET = {"show_progress": "hidden", "api_visibility": "private"}


def _check(key: str, elem_id: str, value: bool) -> gr.Checkbox:
    return gr.Checkbox(
        value,
        label=T(key),
        elem_id=elem_id,
        elem_classes="kk-check",
        container=False,
        interactive=True,
    )


def _choice(key: str, elem_id: str, choices: list[tuple], value: str) -> gr.Radio:
    return gr.Radio(
        choices,
        value=value,
        label=T(key),
        elem_id=elem_id,
        elem_classes=["kk-seg", "kk-sm"],
        interactive=True,
    )


def tab(most_days: int) -> dict[str, gr.components.Component]:
    """most_days: what the studio keeps at most; longer choices are not offered."""
    terms = {"forever": FOREVER_DAYS, "month": 30, "week": 7, "day": 1, "never": 0}
    if most_days not in terms.values():
        terms = {"most": most_days, **terms}
    days = [(T(f"set.priv.{name}"), str(n)) for name, n in terms.items() if n <= most_days]
    with (
        gr.Tab(T("tab.settings"), id="settings", elem_id="kk-tab-settings"),
        gr.Column(elem_classes=["kk-page", "kk-settings"]),
    ):
        with gr.Column(elem_classes="kk-card"):
            part("title_look", {"t": "set.look"})
            lang = _choice("set.lang", "kk-set-lang", [("中文", "zh"), ("English", "en")], "zh")
            theme = _choice(
                "theme.label",
                "kk-set-theme",
                [(T(f"theme.{v}"), v) for v in ("system", "light", "dark")],
                "system",
            )
        with gr.Column(elem_classes="kk-card"):
            part("title_play", {"t": "set.play"})
            autoplay = _check("set.play.auto", "kk-set-autoplay", True)
            motion = _check("set.play.motion", "kk-set-motion", False)
            keys = _check("set.keys", "kk-set-keys", True)
        with gr.Column(elem_classes="kk-card"):
            part("title_priv", {"t": "set.priv", "s": "set.priv.note"})
            keep = _choice("set.priv.keep", "kk-set-keep", days, str(most_days))
            part("storage", elem_id="kk-storage")
            label = _check("set.label.file", "kk-set-label", True)
            notice = _check("set.label.spoken", "kk-set-notice", False)
        with gr.Column(elem_classes="kk-card"):
            part("models", elem_id="kk-models")
        with gr.Column(elem_classes="kk-card"):
            part("words", elem_id="kk-words")
        with gr.Column(elem_classes="kk-card"):
            part("keys", elem_id="kk-apikeys")
        with gr.Column(elem_classes="kk-card"):
            part("demos", elem_id="kk-demos")
    lang.input(None, inputs=[lang], js="(v) => { kaikou.setLang(v); }", api_visibility="private")
    theme.input(None, inputs=[theme], js="(v) => { kaikou.setTheme(v); }", api_visibility="private")
    for box, preference in ((autoplay, "autoplay"), (motion, "motion"), (keys, "keys")):
        box.input(
            None,
            inputs=[box],
            js=f"(v) => {{ kaikou.setPreference('{preference}', v); }}",
            api_visibility="private",
        )
    return {
        "set_lang": lang,
        "set_theme": theme,
        "autoplay": autoplay,
        "motion": motion,
        "keys": keys,
        "keep": keep,
        "label": label,
        "notice": notice,
    }


def wire(studio, w: dict[str, gr.components.Component]) -> None:
    """The studio holds label and notice for each visit; the browser remembers them and says them
    again when a page opens. How long takes are kept only the studio knows: an account may have
    several browsers.
    """

    def privacy(event: gr.EventData, request: gr.Request) -> None:
        wish, owner = event._data, owner_of(request)
        studio.takes.label(owner, wish["label"] is True)
        studio.takes.notice(owner, wish["notice"] is True)

    w["form"].privacy(privacy, **QUIET)
    for box, preference in ((w["keep"], "keep"), (w["label"], "label"), (w["notice"], "notice")):
        box.input(
            None,
            inputs=[box],
            js=f"(v) => {{ kaikou.setPrivacy('{preference}', v); }}",
            api_visibility="private",
        )
    # what this browser remembers, put into the widgets: at start and whenever the header's own
    # switches change it
    own = [
        w[n]
        for n in ("set_lang", "set_theme", "autoplay", "motion", "keys", "notice", "keep", "label")
    ]
    w["form"].settings(
        None,
        inputs=own[-2:],
        outputs=own,
        js="(...now) => kaikou.settingsNow(...now)",
        api_visibility="private",
    )
