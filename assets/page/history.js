// @ts-check
/* The list of takes: download, once more, restore, favourite, delete with a way back. Their sound
   is audio_preview.js. */
import { player } from "../player/controller.js";
import { acts } from "./acts.js";
import { soundHead, sounding, stopPreview, takeUrl } from "./audio_preview.js";
import { bars } from "./clip_report.js";
import { hasCode } from "./code_text.js";
import { aim } from "./convert.js";
import { toast } from "./engine_status.js";
import { studioUrl } from "./facts.js";
import { choose, chosen, setField, toText } from "./fields.js";
import { put } from "./form_values.js";
import { lastParams, regenerate } from "./generation.js";
import { ico } from "./icons.js";
import { draw, live, parts, send } from "./parts.js";
import { formatMenu, setStorage, storageLine } from "./storage.js";
import { lang, said, t } from "./strings.js";
import { askStudio } from "./studio_api.js";
import { unstyle } from "./style.js";
import { clock, esc } from "./text.js";
import { recount } from "./text_tools.js";
import { modelOf, pick, voiceName, voices } from "./voice_choice.js";

let known = []; // what the studio keeps, newest first
let failed = []; // attempts that never became a take: kept on this page only
const local = id => failed.some(f => f.id === id);
const list = () => [...failed, ...known];
export const take = id => list().find(k => k.id === id);
const gone = new Set(); // deleted, still undoable
const sources = new Map(); // take -> the recording it was converted from: known to this page only
function ago(then) {
  const m = Math.floor((Date.now() / 1000 - then) / 60);
  return m < 1
    ? t("takes.now")
    : m < 60
      ? t("takes.min", {
          n: m
        })
      : m < 1440
        ? t("takes.hour", {
            n: Math.floor(m / 60)
          })
        : t("takes.day", {
            n: Math.floor(m / 1440)
          });
}
const b = (what, id, icon, key, extra = "") =>
  `<button type="button" class="kk-iconb" data-do="${what}" data-id="${esc(id)}" data-a="${key}"
      data-tip="${key}"${extra}>${ico(icon)}</button>`;

const voiceOf = k =>
  (v => (v ? voiceName(v) : k.voice_name || t("ref.label")))(voices().find(v => v.id === k.voice));

function card(k) {
  const bad = k.state === "failed",
    dur = k.n_samples / k.sample_rate,
    on = sounding(k.id, "take");
  const id = `data-id="${esc(k.id)}"`,
    span = (words, cls = "") => `<span${cls && ` class="${cls}"`}>${esc(words)}</span>`;
  const why = typeof k.error === "string" ? k.error : said(k.error);
  const retry = local(k.id) ? "bar.retry" : "";
  const again = k.mode !== "convert" || bad || sources.has(k.id);
  const meta = [
    bad ? span(t("takes.failed") + (why ? `: ${why}` : ""), "kk-badword") : "",
    k.stopped_at ? span(t("takes.stoppedat", { n: k.stopped_at[0], m: k.stopped_at[1] })) : "",
    ...[voiceOf(k), k.instruction, `${k.speed.toFixed(2)}×`].filter(Boolean).map(s => span(s)),
    k.seed === ""
      ? ""
      : `<button type="button" data-do="copyseed" ${id}
        aria-label="${esc(t("takes.copyseed") + " " + k.seed)}">${esc(
          t("takes.seed", { n: k.seed })
        )}</button>`,
    k.first_sound_ms != null ? span(`${t("m.first")} ${Math.round(k.first_sound_ms)} ms`) : "",
    k.engine === "builtin" ? span(t("takes." + (k.voice_engine || "builtin")), "kk-tag") : "",
    span(ago(k.created_at))
  ].join("");
  const press = [
    canContinue(k.id)
      ? `<button type="button" class="kk-again" data-do="continuetake" ${id}
        data-tip="takes.continue.t">${esc(t("takes.continue"))}</button>`
      : "",
    again
      ? `<button type="button" class="kk-again" data-do="reroll" ${id}
        data-tip="${retry || "takes.reroll.t"}">${esc(t(retry || "takes.reroll"))}</button>`
      : "",
    b("restore", k.id, "again", "takes.restore"),
    k.n_samples
      ? `<a class="kk-iconb" href="${esc(takeUrl(k.id))}" download data-do="savetake"
        data-a="takes.down" data-tip="takes.down">${ico("down")}</a>`
      : "",
    hasCode(k) ? b("code", k.id, "code", "takes.code", ' aria-haspopup="dialog"') : "",
    retry ? "" : b("star", k.id, "star", "takes.star", ` aria-pressed="${!!k.starred}"`),
    b("droptake", k.id, "bin", "takes.del")
  ].join("");
  const notes = (k.voice_notes || [])
    .map(([en, zh]) => `<p class="kk-sub kk-voicenote">${esc(lang === "zh" ? zh : en)}</p>`)
    .join("");
  const wave = k.n_samples
    ? `<div class="kk-mini" role="slider" tabindex="0" data-do="seektake" ${id}
      data-a="takes.seek"
        aria-valuemin="0" aria-valuemax="${Math.round(dur)}" aria-valuenow="0"
          style="--p:0%">${bars(k.peaks, 900, 34)}` +
      `${bars(k.peaks, 900, 34, "kk-on")}<time class="kk-num">${clock(dur)}</time></div>`
    : "";
  const name = esc(t(on ? "bar.pause" : "bar.play") + ": " + k.text),
    icon = bad && !k.n_samples ? "bad" : on ? "pause" : "play";
  return `<li class="kk-take" data-take="${esc(k.id)}"${bad ? ' data-tone="bad"' : ""}><button
    type="button" class="kk-pp"
      data-do="playtake" ${id} aria-label="${name}"${k.n_samples ? "" : " disabled"}>${ico(
        icon,
        20
      )}</button>
    <p title="${esc(k.text)}">${esc(k.text)}</p><div class="kk-meta kk-num">${meta}${notes}</div>
    <div class="kk-acts">${press}</div>${wave}</li>`;
}
parts.takes = (root, data) => {
  if (data?.fault) toast(said(data.fault));
  if (data?.ids) {
    const all = new Map([...known, ...data.takes].map(k => [k.id, k]));
    known = data.ids.flatMap(id => all.get(id) ?? []);
    setStorage(data.storage);
    if (known.length < data.ids.length) reloadTakes(); // another tab made one
  }
  live.takes.data = known;
  const takes = list().filter(k => !gone.has(k.id));
  root.innerHTML = `<section class="kk" aria-labelledby="kk-takes-h"><div class="kk-secthead"><h2
    class="kk-h2"
        id="kk-takes-h">${esc(t("takes.title"))}</h2>${
          takes.some(k => k.n_samples)
            ? `${formatMenu("takes")}<a class="kk-link"
        href="${esc(studioUrl())}/tts/takes.zip" download
          data-do="savezip">${ico("down", 15)}${esc(t("takes.zip"))}</a>`
            : ""
        }</div>
    ${takes.length ? storageLine() : ""}
    ${
      takes.length
        ? `<ol class="kk-takes">${takes.map(card).join("")}</ol>`
        : `<p
        class="kk-empty">${esc(t("takes.empty"))}</p>`
    }</section>`;
  soundHead();
  document.dispatchEvent(new CustomEvent("kk:takes"));
  recount(); // a voice's newest takes say how long its next one lasts
};
setInterval(() => {
  if (!document.hidden && list().length)
    live.takes.root.querySelectorAll("[data-take]").forEach(li => {
      const s = ago(take(li.dataset.take)?.created_at ?? 0),
        el = [...li.querySelectorAll(".kk-meta > span")].at(-1);
      if (el && el.textContent !== s) el.textContent = s;
    });
}, 60000);

document.addEventListener("kk:player", () => {
  const P = player,
    p = lastParams;
  if (P.job && p?.mode === "convert") sources.set(P.job, p.source);
  // without a code it is the page's own word: nothing was begun
  if (P.state !== "failed" || !("code" in P.info) || !p || p === failed[0]?.params) return;
  if (P.peaks.length || p.continue_from) return; // the studio keeps what was made of it
  failed = [
    {
      id: "failed-" + Date.now(),
      params: p,
      state: "failed",
      error: P.info.why,
      text: p.input,
      voice: p.voice,
      voice_name: (v => (v ? voiceName(v) : ""))(voices().find(v => v.id === p.voice)),
      mode: p.mode,
      instruction: p.instructions,
      language: p.language,
      speed: p.speed,
      seed: p.seed < 0 ? "" : p.seed,
      n_samples: 0,
      sample_rate: 24000,
      created_at: Date.now() / 1000,
      peaks: []
    },
    ...failed
  ].slice(0, 5);
  draw("takes");
});

// ---- acts -------------------------------------------------------------------------------------
const params = k => ({
  input: k.text,
  voice: k.voice,
  mode: k.mode,
  instructions: k.instruction,
  language: k.language,
  speed: k.speed,
  profile: chosen("kk-hop", "fast"),
  transcript: "",
  consent: true,
  ...modelOf(k.voice_engine),
  ...(k.mode === "convert" ? { source: sources.get(k.id) } : {})
});
acts.reroll = el => {
  const k = take(el.dataset.id);
  failed = failed.filter(f => f.id !== k.id);
  draw("takes");
  regenerate(
    k.params || {
      ...params(k),
      seed: -1
    }
  );
};
export const canContinue = id => (k => !!k?.stopped_at && k.mode !== "convert")(take(id));
/* From the sentence that broke, with its seed and settings, which the studio knows; the sound
   that is there comes first. */
export const continueTake = id => {
  const heard_s = player.job === id ? player.position() : null;
  regenerate({ ...params(take(id)), continue_from: id }, heard_s);
};
acts.continuetake = el => continueTake(el.dataset.id);
acts.restore = el => {
  const k = take(el.dataset.id);
  if (k.mode === "convert") return aim(k.voice);
  unstyle();
  put({
    text: k.text,
    mode: k.mode,
    instruct: k.instruction,
    speed: k.speed,
    seed: String(k.seed),
    random: false,
    language: k.language,
    ...(k.voice_engine ? { voice_engine: k.voice_engine } : {})
  });
  const v = voices().find(x => x.id === k.voice);
  if (v) {
    pick.saved = v.id;
    if (v.starter) pick.starter = v.id;
    if (k.mode !== "preset") choose("kk-source", "saved");
    draw("picker");
  }
  toText();
};
acts.copyseed = async el => {
  try {
    await navigator.clipboard.writeText(String(take(el.dataset.id).seed));
    toast(t("takes.copied"));
  } catch {
    setField("kk-seed", String(take(el.dataset.id).seed));
  }
};
/* One request at a time for each take: a delete must not overtake the star before it. The studio's
   answer, or null after its sentence was shown; then the list is asked for anew. */
const turns = new Map();
function change(method, id, tail = "", body = null) {
  const turn = Promise.resolve(turns.get(id)).then(async () => {
    const path = `/v1/audio/takes/${encodeURIComponent(id)}${tail}`;
    const told = await askStudio(method, path, body);
    if (!told.error) return told;
    toast(told.error);
    reloadTakes();
    return null;
  });
  turns.set(id, turn);
  return turn;
}
/* takes: what the studio keeps now, in any order. */
function setTakes(takes, storage) {
  known = takes.sort((a, b) => b.created_at - a.created_at);
  setStorage(storage);
  draw("takes");
}
acts.star = el => {
  const k = take(el.dataset.id);
  k.starred = !k.starred;
  el.setAttribute("aria-pressed", String(k.starred));
  change("PATCH", k.id, "", { starred: k.starred });
};
acts.droptake = el => {
  const id = el.dataset.id,
    k = take(id),
    others = () => known.filter(x => x.id !== id);
  gone.add(id);
  if (sounding(id, "take")) stopPreview();
  const next = el.closest("li").nextElementSibling || el.closest("li").previousElementSibling;
  const to = next?.dataset.take;
  if (local(id)) {
    failed = failed.filter(f => f.id !== id);
    return draw("takes");
  }
  draw("takes");
  if (to)
    live.takes.root.querySelector(`[data-do=droptake][data-id="${CSS.escape(to)}"]`)?.focus({
      preventScroll: true
    });
  change("DELETE", id).then(told => {
    if (told) setTakes(others(), told.storage);
    else gone.delete(id);
  });
  toast(
    t("takes.deleted"),
    t("sys.undo"),
    () => {
      change("POST", id, "/restore").then(told => {
        gone.delete(id);
        if (told) setTakes([...others(), k], told.storage);
      });
    },
    8000
  );
};
export const reloadTakes = () =>
  send("takes", {
    op: "list"
  });
