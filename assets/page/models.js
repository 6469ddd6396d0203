// @ts-check
/* The models card of the settings tab: what is on this disk, which of it speaks, what may be
   fetched. Reads what /tts/health told; the presses are the header's. */
import { acts } from "./acts.js";
import { engine, modelList, modelsHere, tellEngine, toast } from "./engine_status.js";
import { studioUrl } from "./facts.js";
import { draw, parts } from "./parts.js";
import { lang, t } from "./strings.js";
import { esc } from "./text.js";

const TONE = { speaks: "ok", loads: "work", downloading: "work", failed: "bad" };
const button = (
  what,
  key,
  name
) => `<button type="button" class="kk-b2" data-do="${what}" data-v="${esc(name)}"
    aria-label="${esc(t(key) + " " + name)}">${esc(t(key))}</button>`;
/* A press for each state; none while another model is on its way. */
function act(m, e, here) {
  if (here) return e.next || m.state === "speaks" ? "" : button("modeluse", "md.use", m.name);
  if (m.state === "downloading") return button("modelpause", "eng.pause", m.name);
  return button("modelget", m.state === "none" ? "md.fetch" : "eng.resume", m.name);
}
/* What the doctor found, under its model. The whole list is fetched when somebody opens it. */
const reports = {};
const mine = (en, zh) => (lang === "zh" ? zh : en) || "";
const profile = p => t("md.doctor.profile", p);
function doctor(m) {
  const d = m.doctor;
  if (!d) return "";
  const told = t("md.doctor." + d.state, { s: d.line || "…", n: d.items - d.failed, m: d.items });
  const agreed = d.agreed ? " · " + t("md.doctor.agreed", { p: profile(d.profile) }) : "";
  const agree =
    d.profile && !d.agreed
      ? `<button type="button" class="kk-b2" data-do="modelagree"
      data-v="${esc(m.name)}">${esc(t("md.doctor.agree", { p: profile(d.profile) }))}</button>`
      : "";
  const press =
    d.state === "runs" || d.state === "waits"
      ? ""
      : button("modeldoctor", d.state === "done" ? "md.doctor.again" : "md.doctor.ask", m.name);
  const found = d.state === "done" ? button("modelreport", "md.doctor.report", m.name) : "";
  return `<div class="kk-doctor" data-state="${d.state}"><p
    class="kk-sub">${esc(told + agreed)}</p>
    <span class="kk-row">${found}${press}${agree}</span>${
      d.state === "done" ? list(reports[m.name]) : ""
    }</div>`;
}
const list = results =>
  !results
    ? ""
    : `<ul>${results
        .map(
          r => `<li data-tone="${{ failed: "bad", warned: "work" }[r.status] || ""}"><b>${esc(
            r.item
          )}</b>
    ${esc(mine(r.en, r.zh))} ${
      r.status === "failed" ? esc(mine(r.remedy_en, r.remedy_zh)) : ""
    }</li>`
        )
        .join("")}</ul>`;
acts.modeldoctor = b => {
  delete reports[b.dataset.v];
  tellEngine("/tts/model/examine?model=" + encodeURIComponent(b.dataset.v));
};
acts.modelagree = b => tellEngine("/tts/model/agree?model=" + encodeURIComponent(b.dataset.v));
acts.modelreport = async b => {
  const name = b.dataset.v;
  if (reports[name]) delete reports[name];
  else {
    const r = await fetch(
      studioUrl() + "/tts/model/report?model=" + encodeURIComponent(name)
    ).catch(() => null);
    if (!r?.ok) return toast(t("err.net"));
    reports[name] = (await r.json()).results;
  }
  draw("models");
};
const names = list => list.join(lang === "zh" ? "、" : ", ");
const differs = m =>
  m.unexpected
    ? `<p class="kk-inline kk-differs" data-tone="warn">${esc(
        t("md.unexpected", { f: names(m.unexpected) })
      )}</p>`
    : "";
const row = (m, e) => {
  const here = modelsHere().includes(m),
    p = e.model?.name === m.name && e.model.p != null ? ` ${e.model.p}%` : "";
  const size = m.gb ? t("md.gb", { n: m.gb }) : "";
  return `<li class="kk-model" data-state="${m.state}"><div><b>${esc(m.name)}</b><p
    class="kk-sub">${esc(t("md.about." + m.engine))}</p></div>
    <span class="kk-num kk-inline" data-tone="${TONE[m.state] || ""}">${esc(
      [t("md." + m.state) + p, size].filter(Boolean).join(" · ")
    )}</span>
    <span class="kk-row">${act(m, e, here)}</span>${differs(m)}${doctor(m)}</li>`;
};
parts.models = root => {
  const e = engine(),
    models = modelList();
  const now = JSON.stringify([lang, models, e.next, e.model?.p, Object.keys(reports)]);
  if (root.dataset.now === now) return;
  root.dataset.now = now;
  const at = document.activeElement?.closest?.("#kk-models [data-v]")?.dataset.v;
  root.innerHTML = !models.length
    ? ""
    : `<div class="kk"><div class="kk-cardhead"><h2 class="kk-h2">${esc(t("md.title"))}</h2><p
      class="kk-sub">${esc(t("md.sub"))}</p></div>
    <ul class="kk-models">${models.map(m => row(m, e)).join("")}</ul></div>`;
  if (at) root.querySelector(`[data-v="${CSS.escape(at)}"]`)?.focus();
};
