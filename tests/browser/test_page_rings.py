"""What is short stands on one line, and a focus ring is seen whole, at the three usual widths and
in both languages.
"""

from __future__ import annotations

import pytest

from .studio_page import StudioPage

pytestmark = pytest.mark.browser

# Names and labels whose text is broken into lines.
BROKEN = """() =>
      [
        ...document.querySelectorAll(
          "#kk-app :is(button, .kk-tag, th, h2, h3, .kk-seg label, .kk-seg > span)," +
            "#kk-app .kk-entry label > span," +
            "#kk-player :is(button, .kk-time)"
        )
      ]
        .filter(e => e.checkVisibility() && e.innerText?.trim())
        .flatMap(e => {
          const walk = document.createTreeWalker(e, NodeFilter.SHOW_TEXT),
            out = [];
          for (let n; (n = walk.nextNode());) {
            if (
              !n.data.trim() ||
              !n.parentElement.checkVisibility() ||
              n.parentElement.closest(".kk-vh, p, small")
            )
              continue;
            const range = document.createRange();
            range.selectNodeContents(n);
            if (
              new Set(
                [...range.getClientRects()].filter(r => r.width > 1).map(r => Math.round(r.top))
              ).size > 1
            )
              out.push(n.data.trim());
          }
          return out;
        })"""
# Controls without a ring, and those whose ring is clipped by what they lie in.
CUT = """() => {
  const kinds = ":is(button, a[href], input, textarea, select, summary, [tabindex='0'])";
  const seen = { opacityProperty: true, visibilityProperty: true };
  const all = [...document.querySelectorAll(`:is(#kk-app, #kk-player) ${kinds}`)].filter(e =>
    e.checkVisibility(seen) && !e.disabled && e.tabIndex >= 0 &&
    e.getBoundingClientRect().width > 2);
  return all.flatMap(e => {
    e.focus({ focusVisible: true });
    if (document.activeElement !== e) return [];
    const host = e.type === "radio" ? e.closest("label") : e, css = getComputedStyle(host);
    const box = host.getBoundingClientRect();
    const words = (e.innerText || e.ariaLabel || "").slice(0, 20);
    const name = `${e.closest("[id]")?.id} ${e.dataset.do || e.id || e.className} ${words}`;
    if (css.outlineStyle === "none" && css.boxShadow === "none") return ["no ring: " + name];
    const wide = css.outlineStyle === "none"
      ? Math.max(...(css.boxShadow.match(/[\\d.]+px/g) || []).map(parseFloat))
      : parseFloat(css.outlineWidth) + parseFloat(css.outlineOffset);
    for (let a = host.parentElement; wide > 0 && a && a !== document.body; a = a.parentElement) {
      const { overflowX, overflowY } = getComputedStyle(a), outer = a.getBoundingClientRect();
      const top = outer.top + a.clientTop, left = outer.left + a.clientLeft;
      const bottom = top + a.clientHeight, right = left + a.clientWidth;
      const high = box.top - wide < top - .5 || box.bottom + wide > bottom + .5;
      const across = box.left - wide < left - .5 || box.right + wide > right + .5;
      if ((overflowY !== "visible" && high) || (overflowX !== "visible" && across))
        return [`cut by ${a.id || a.className}: ${name}`];
    }
    return [];
  });
}"""
READY = {
    "speak": ".kk-adv input",
    "voices": "#kk-library .kk-voice",
    "convert": "#kk-target .kk-pick",
    "batch": "#kk-batchtext",
    "settings": ".kk-wordfoot",
}


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_short_text_stays_on_one_line_and_no_ring_is_cut(chrome, studio, lang):
    faults = {}
    with StudioPage(chrome, studio.url, lang) as p:
        p.page.click(".kk-adv > button")
        p.js("KK.useVoice('starter-zh-low')")  # in use
        for tab, selector in READY.items():
            p.js("t => KK.tab(t)", tab)
            p.page.wait_for_selector(selector)
            for width in (390, 768, 1280):
                p.page.set_viewport_size({"width": width, "height": 900})
                p.page.wait_for_timeout(300)
                faults[f"{tab} {width}"] = p.js(BROKEN) + p.js(CUT)
        assert {k: v for k, v in faults.items() if v} == {}
        assert not p.errors
