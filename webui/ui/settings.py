"""The tab Settings: only what acts at once. Looks and playback live in the browser, retention and the file label in the studio."""

from __future__ import annotations

import gradio as gr

from .owner import owner_of
from .parts import part
from .strings import T

QUIET = {"show_progress": "hidden", "api_visibility": "private"}


def _check(key: str, elem_id: str, value: bool) -> gr.Checkbox:
    return gr.Checkbox(value, label=T(key), elem_id=elem_id, elem_classes="kk-check", container=False, interactive=True)


def _choice(key: str, elem_id: str, choices: list[tuple], value: str) -> gr.Radio:
    return gr.Radio(choices, value=value, label=T(key), elem_id=elem_id, elem_classes=["kk-seg", "kk-sm"], interactive=True)


def tab(most_days: int) -> dict[str, gr.components.Component]:
    """most_days: what the studio keeps at most; longer choices are not offered."""
    days = [(T(f"set.priv.{k}"), v) for k, v, n in (("day", "1", 1), ("week", "7", 7), ("never", "0", 0)) if n <= most_days]
    with gr.Tab(T("tab.settings"), id="settings"), gr.Column(elem_classes=["kk-page", "kk-settings"]):
        with gr.Column(elem_classes="kk-card"):
            part("title_look", {"t": "set.look"})
            lang = _choice("set.lang", "kk-set-lang", [("中文", "zh"), ("English", "en")], "zh")
            theme = _choice("theme.label", "kk-set-theme", [(T(f"theme.{v}"), v) for v in ("system", "light", "dark")], "system")
        with gr.Column(elem_classes="kk-card"):
            part("title_play", {"t": "set.play"})
            autoplay = _check("set.play.auto", "kk-set-autoplay", True)
            motion = _check("set.play.motion", "kk-set-motion", False)
            keys = _check("set.keys", "kk-set-keys", True)
        with gr.Column(elem_classes="kk-card"):
            part("title_priv", {"t": "set.priv", "s": "set.priv.note"})
            keep = _choice("set.priv.keep", "kk-set-keep", days, days[-2][1] if len(days) > 1 else "0")
            label = _check("set.label.file", "kk-set-label", True)
    lang.input(None, inputs=[lang], js="(v) => { KK.setLang(v); }", api_visibility="private")
    theme.input(None, inputs=[theme], js="(v) => { KK.setTheme(v); }", api_visibility="private")
    for box, what in ((autoplay, "autoplay"), (motion, "motion"), (keys, "keys")):
        box.input(None, inputs=[box], js=f"(v) => {{ KK.set('{what}', v); }}", api_visibility="private")
    return {"set_lang": lang, "set_theme": theme, "autoplay": autoplay, "motion": motion, "keys": keys, "keep": keep, "label": label}


def wire(studio, w: dict[str, gr.components.Component]) -> None:
    def keep(days: str, request: gr.Request) -> None:
        studio.takes.keep(owner_of(request), int(days))

    def label(on: bool, request: gr.Request) -> None:
        studio.takes.label(owner_of(request), bool(on))

    w["keep"].input(keep, inputs=[w["keep"]], **QUIET)
    w["label"].input(label, inputs=[w["label"]], **QUIET)
    own = [w[n] for n in ("set_lang", "set_theme", "autoplay", "motion", "keys")]
    # what this browser remembers, put into the widgets; they are drawn when the tab opens, so it is asked for then and at each language switch
    w["form"].settings(None, outputs=own, js="() => KK.settingsNow()", api_visibility="private")
