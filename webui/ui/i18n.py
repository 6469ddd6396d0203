"""Every sentence of the page, read once from assets/lang: key -> text per language.

Widgets get them through gr.I18n, scripts as a table.
"""

from __future__ import annotations

import json
from functools import cache

import gradio as gr

from ..files import ASSETS

LANG_DIR = ASSETS / "lang"
LANGUAGES = ("zh", "en")


@cache
def table(language: str) -> dict[str, str]:
    """key -> sentence; language is "zh" or "en"."""
    return json.loads((LANG_DIR / f"{language}.json").read_text("utf-8"))


@cache
def i18n() -> gr.I18n:
    """Gradio asks for zh-CN where a browser says so, and for zh elsewhere: both get the same
    table.
    """
    return gr.I18n(**{"zh": table("zh"), "zh-CN": table("zh"), "en": table("en")})


def T(key: str) -> gr.i18n.I18nData | str:  # noqa: N802  as its users write it
    return i18n()(key)
