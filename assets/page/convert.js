// @ts-check
/* The tab Convert: the words of one recording in another voice. Source card, target list, and the
   request; sound is the player's. The tab is there while the engine can do it. */
import { player } from "../player/controller.js";
import { acts } from "./acts.js";
import { playSource, sounding, stopPreview } from "./audio_preview.js";
import { bars, refusal } from "./clip_report.js";
import { engine } from "./engine_status.js";
import { chosen, tab, tabNow } from "./fields.js";
import { notice, regenerate, unnotice } from "./generation.js";
import { ico } from "./icons.js";
import { draw, live, parts } from "./parts.js";
import { store } from "./store.js";
import { said, t } from "./strings.js";
import { esc } from "./text.js";
import { draft, voices } from "./voice_choice.js";
import { voiceRow } from "./voices.js";

const MAX_S = 30,
  CLIP = "clip"; // the reference clip of the tab Speak, as it is cut there at that moment
let target = store.get("target"),
  agreed = false,
  need = "";

// ---- the recording ----------------------------------------------------------------------------
export const sourceIn = stays => {
  live.source.busy = true;
  if (!stays) live.source.data = null;
  need = "";
  ["source", "target"].forEach(draw);
};
export const sourceOut = () => {
  live.source.busy = false;
  live.source.data = null;
  stopPreview();
  draw("source");
};
const source = () => {
  const d = live.source?.data;
  return d?.id && !live.source.busy ? d : null;
};
const seconds = d => d.report.duration_s;
parts.source = (root, d) => {
  const part = live.source;
  if (d && d !== part.last) d = part.data = arrived(part, d);
  if (!d) part.sure = part.refused = null;
  part.last = d;
  root.innerHTML = `<div class="kk kk-health">${
    part.busy
      ? `<p class="kk-empty" role="status">${esc(t("health.loading"))}</p>`
      : !d
        ? `<p class="kk-empty">${esc(t("cv.empty"))}</p>`
        : d.error
          ? bad(said(d.error))
          : refusal("source") +
            (seconds(d) > MAX_S ? bad(t("cv.long", { s: seconds(d).toFixed(0) })) : good(d))
  }</div>`;
};
/* What Python sent, or why it did not: then the recording that is there stays. */
function arrived(part, d) {
  if (d.n && d.n < part.wish) return part.last;
  part.busy = false;
  part.refused = d.error && part.sure ? d.error : null;
  if (part.refused) return part.sure;
  part.sure = d.error ? null : d;
  queueMicrotask(() => draw("recorder_src"));
  return d;
}
const bad = words =>
  `<div class="kk-warn" data-tone="bad" role="alert">${ico("bad")}<span>${esc(words)}</span></div>`;
const good = d =>
  `<div class="kk-healthhead"><span class="kk-verdict" role="status">${ico("ok", 16)}` +
  `${esc(t("cv.ok", { s: seconds(d).toFixed(1) }))}</span><button type="button" class="kk-link"
    data-do="playsource"
      data-id="${esc(d.id)}">${ico(sounding(d.id, "source") ? "pause" : "play", 14)}${esc(
        t("cv.play")
      )}</button></div>
    <div class="kk-strip">${bars(d.report.peaks || [])}</div>`;
acts.playsource = b => playSource(b.dataset.id);

// ---- the voice it becomes ---------------------------------------------------------------------
const choices = () => {
  const d = draft();
  return [
    ...(d ? [{ id: CLIP, name: t("cv.clip"), sample: false, length_s: d.end_s - d.start_s }] : []),
    ...voices()
  ];
};
const chosenVoice = () => {
  const list = choices();
  return list.find(v => v.id === target) || list[0] || null;
};
parts.target = root => {
  const list = choices(),
    now = chosenVoice();
  const row = v => {
    const extra = v.id === CLIP ? [t("vo.sec", { d: v.length_s.toFixed(1) }), ""] : [];
    return voiceRow(v, "target", v === now || v.id === now?.id, v.id === now?.id, ...extra);
  };
  const rows = list.length
    ? list.map(row).join("")
    : `<p class="kk-empty">${esc(t("vo.empty"))}</p>`;
  root.innerHTML =
    `<div class="kk kk-picker"><div class="kk-picklist" role="radiogroup"
      aria-label="${esc(t("cv.to"))}">${rows}</div>
    <label class="kk-switch"><input type="checkbox"
      id="kk-cvconsent"${agreed ? " checked" : ""}>${esc(t("cv.consent"))}</label>` +
    (need ? `<p class="kk-inline" data-tone="bad" role="status">${esc(t(need))}</p>` : "") +
    "</div>";
};
acts.target = b => {
  target = b.dataset.id;
  store.set("target", target);
  draw("target");
};
document.addEventListener("change", e => {
  if (!e.target.matches?.("#kk-cvconsent")) return;
  agreed = e.target.checked;
  if (agreed && need) {
    need = "";
    draw("target");
  }
});
document.addEventListener("kk:draft", () => draw("target"));

// ---- the request ------------------------------------------------------------------------------
export const convert = () => {
  const d = source(),
    voice = chosenVoice();
  if (!d) {
    document.querySelector("#kk-src :is(input, button)")?.focus();
    return notice("nosource");
  }
  if (d.error || seconds(d) > MAX_S)
    return notice("failed", {
      why: d.error ? said(d.error) : t("cv.long", { s: seconds(d).toFixed(0) })
    });
  if (!voice) return notice("novoice");
  if (!agreed) {
    need = "cv.need";
    draw("target");
    return document.getElementById("kk-cvconsent")?.focus();
  }
  const id = voice.id === CLIP ? draft().id : voice.id;
  regenerate({
    mode: "convert",
    source: d.id,
    voice: id,
    input: t("cv.take", { n: d.name || t("cv.mic") }),
    instructions: "",
    language: "auto",
    speed: 1,
    seed: -1,
    profile: chosen("kk-hop", "fast"),
    transcript: "",
    consent: true
  });
};
/* From a take: its voice is chosen again; the recording stays what it is. */
export const aim = id => {
  target = id;
  tab("convert");
  draw("target");
};

/* An idle bar says what this tab waits for; what was wrong on another tab stays there. */
document.addEventListener("kk:tab", () => {
  const here = tabNow() === "convert",
    state = player.state;
  const is_old = ["notext", "novoice", "nosource", "failed"].includes(state);
  if (here && (is_old || ["cold", "warm"].includes(state))) notice("convert");
  else if (!here && (is_old || state === "convert")) unnotice();
});

/* An engine that cannot convert takes the tab away; nobody is left standing on it. */
document.addEventListener("kk:engine", () => {
  if (tabNow() === "convert" && engine().modes && !engine().modes.includes("convert")) tab("speak");
});
