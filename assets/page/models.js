/* The models card of the settings tab: what is on this disk, which of it speaks, what may be fetched. Reads what /tts/health told; the
   presses are the header's. */
(() => {
  const { t, esc, parts } = KK;
  const TONE = { speaks: "ok", loads: "work", downloading: "work", failed: "bad" };
  const button = (what, key, name) => `<button type="button" class="kk-b2" data-do="${what}" data-v="${esc(name)}"
      aria-label="${esc(t(key) + " " + name)}">${esc(t(key))}</button>`;
  /* A press for each state; none while another model is on its way. */
  function act(m, e, here) {
    if (here) return e.next || m.state === "speaks" ? "" : button("modeluse", "md.use", m.name);
    if (m.state === "downloading") return button("modelpause", "eng.pause", m.name);
    return button("modelget", m.state === "none" ? "md.fetch" : "eng.resume", m.name);
  }
  const row = (m, e) => {
    const here = KK.modelsHere().includes(m), p = e.model?.name === m.name && e.model.p != null ? ` ${e.model.p}%` : "";
    const size = m.gb ? t("md.gb", { n: m.gb }) : "";
    return `<li class="kk-model" data-state="${m.state}"><div><b>${esc(m.name)}</b><p class="kk-sub">${esc(t("md.about." + m.engine))}</p></div>
      <span class="kk-num kk-inline" data-tone="${TONE[m.state] || ""}">${esc([t("md." + m.state) + p, size].filter(Boolean).join(" · "))}</span>
      <span class="kk-row">${act(m, e, here)}</span></li>`;
  };
  parts.models = root => {
    const e = KK.engine(), list = KK.models();
    const now = JSON.stringify([KK.lang, list, e.next, e.model?.p]);
    if (root.dataset.now === now) return;
    root.dataset.now = now;
    const at = document.activeElement?.closest?.("#kk-models [data-v]")?.dataset.v;
    root.innerHTML = !list.length ? "" : `<div class="kk"><div class="kk-cardhead"><h2 class="kk-h2">${esc(t("md.title"))}</h2><p class="kk-sub">${esc(t("md.sub"))}</p></div>
      <ul class="kk-models">${list.map(m => row(m, e)).join("")}</ul></div>`;
    if (at) root.querySelector(`[data-v="${CSS.escape(at)}"]`)?.focus();
  };
})();
