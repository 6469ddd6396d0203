// @ts-check
/* The clip's health card: verdict, strip with the windows, warnings with their cures, figures,
   denoise. Drawn from the report that Python sends. */
import { listen } from "./ab_preview.js";
import { acts } from "./acts.js";
import { playVoice } from "./audio_preview.js";
import { amount, card, data, isCleaned, isSame, isWhole } from "./clip_state.js";
import { toast } from "./engine_status.js";
import { strings } from "./facts.js";
import { field } from "./fields.js";
import { ico } from "./icons.js";
import { draw, live, parts } from "./parts.js";
import { store } from "./store.js";
import { said, t } from "./strings.js";
import { esc } from "./text.js";
import { recount } from "./text_tools.js";
import {
  draft,
  noClip,
  pick,
  source,
  voiceId,
  voiceName,
  voiceNow,
  voices
} from "./voice_choice.js";

const page = document.documentElement.dataset;

/* peaks: 0..1 each */
export const bars = (peaks, w = 600, h = 56, cls = "") => {
  const step = w / Math.max(1, peaks.length),
    bw = step * 0.55,
    top = Math.max(0.05, ...peaks);
  return (
    `<svg${cls ? ` class="${cls}"` : ""} viewBox="0 0 ${w} ${h}" preserveAspectRatio="none"
      aria-hidden="true">` +
    peaks
      .map((p, i) => {
        const y = Math.max(1.5, (p / top) * (h - 8));
        const [x, top_y, wide, high] = [i * step, (h - y) / 2, bw, y].map(v => v.toFixed(1));
        return `<rect x="${x}" y="${top_y}" width="${wide}" height="${high}" rx="1"/>`;
      })
      .join("") +
    "</svg>"
  );
};

const seconds = w => w.end_s - w.start_s;
const partOf = d => ({ a: d.start_s.toFixed(1), b: d.end_s.toFixed(1) });
const hasChange = d => d.report.speaker_changes_s.some(s => s > d.start_s && s < d.end_s);
/* What a cure did to the figure that its warning is about, measured again by the studio on the
   part in use. */
const FIGURES = {
  noisy: ["snr_db", "dB"],
  music: ["snr_db", "dB"],
  quiet: ["loudness_lufs", "LUFS"]
};
function moved(code, d) {
  const [key, unit] = FIGURES[code] || [];
  return key && d.after
    ? t("health.moved", { a: plain(d.before[key]), b: plain(d.after[key]), u: unit })
    : "";
}
const plain = v => String(Math.round(v)).replace("-", "−");
/* Report -> warnings as shown: worst first, with the measured value in the sentence. A cured one
   keeps its place and turns green. */
function warnings(d) {
  const r = d.report,
    ui = card().ui,
    list = (r.warnings || []).map(w => ({
      code: w.code,
      tone: w.tone,
      v: String(w.v).replace("-", "−"),
      k: w.k
    }));
  const odd = pace(d);
  if (odd) list.push({ tone: "warn", ...odd });
  list.forEach(w => {
    w.done = w.code === "speakers" ? !hasChange(d) : !!ui.undo?.[w.code] || isCleaned(w.code, d);
    w.moved = w.done ? moved(w.code, d) : "";
  });
  return list
    .filter(w => `w.${w.code}` in strings.zh)
    .sort((a, b) => Number(b.tone === "bad") - Number(a.tone === "bad"));
}
/* Characters of the transcript per second of the part in use, as a warning; null when believable
   or not given. */
function pace(d) {
  const s = field("kk-transcript")?.value.trim() || "";
  if (!s) return null;
  const han = (
      s.match(/[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/gu) || []
    ).length,
    letters = (s.match(/[\p{L}\p{N}]/gu) || []).length - han,
    r = d.report,
    // silence around the words is no part of what is used
    outer = r.whole ? r.duration_s / seconds(r.whole) : 1;
  const n = han + letters,
    per = n / Math.max(0.1, (d.end_s - d.start_s) * Math.min(1, r.speech_ratio * outer + 0.1)),
    share = han / Math.max(1, n);
  const code =
    per > 26 - 17 * share ? "transcript" : per < 5 - 3.5 * share ? "transcript_less" : "";
  // 1.5-9 a second in Chinese, 5-26 letters in alphabets
  return n && code ? { code, v: per.toFixed(1) } : null;
}

parts.health = (root, d) => {
  const part = card();
  part.ui ??= {};
  if (d && d !== part.last) d = part.data = arrived(part, d);
  if (!d) part.last = part.sure = part.refused = null;
  if (part.busy) {
    root.innerHTML = `<div class="kk kk-health"><p class="kk-empty"
      role="status">${esc(t("health.loading"))}</p></div>`;
    return;
  }
  if (!d) return empty(root);
  if (d.error) {
    page.voice = "open";
    draw("title_voice");
    root.innerHTML = `<div class="kk kk-health"><div class="kk-warn" data-tone="bad"
          role="alert">${ico("bad")}<span>${esc(said(d.error))}</span><button type="button"
          data-do="otherclip">${esc(t("ref.change"))}</button></div></div>`;
    return;
  }
  full(root, d, part.ui);
};
/* Why what was brought last did not take the place of the clip that is there. */
export const refusal = card =>
  !live[card].refused
    ? ""
    : `<div class="kk-warn" data-tone="bad" role="alert">${ico("bad")}<span>${esc(
        said(live[card].refused) + t("ref.stays")
      )}</span><button type="button" data-do="dismiss"
    data-card="${card}">${esc(t("notes.close"))}</button></div>`;
/* What Python sent: a new clip, the answer to a change, or why it could not be. Answers to wishes
   that were overtaken are passed over. */
function arrived(part, d) {
  if (d.n && d.n < part.wish) return part.last;
  if (d.fault && live.need.data?.key === "save.working") {
    live.need.data = { said: d.fault, tone: "bad" };
    draw("need");
  } else if (d.fault) toast(said(d.fault));
  // the clip that is there stays, and the notice stands above it
  const refused = d.error && part.sure;
  const now = d.fault || refused ? (structuredClone(part.sure) ?? null) : d;
  if (now && !d.fault && !refused && (now.clip !== part.last?.clip || now.error)) {
    // a transcript that is there was typed for another clip, or ahead of this one
    part.ui = { fits: false };
    listen.stop();
  }
  part.refused = refused ? d.error : null;
  part.last = now;
  part.sure = now && !now.error ? structuredClone(now) : part.sure;
  part.busy = part.pending = false;
  queueMicrotask(() => {
    draw("fit");
    document.dispatchEvent(new CustomEvent("kk:draft"));
  });
  return now;
}

function empty(root) {
  const list = voices().filter(v => v.starter && v.sample),
    now = !noClip() && source() === "new" ? voiceId() : null;
  const chip = v => `<button type="button" class="kk-chip" data-do="demo" data-id="${esc(v.id)}"
      aria-pressed="${v.id === now}">${ico("play", 13)}${esc(voiceName(v))}</button>`;
  const stand = list.find(v => v.id === now);
  const demo = !list.length
    ? ""
    : `<div class="kk-demo"><span id="kk-demo-t">${esc(t("ref.demo"))}</span>
    <div class="kk-chips" role="group" aria-labelledby="kk-demo-t">${list
      .map(chip)
      .join("")}</div>` +
      (stand ? `<p class="kk-sub">${esc(t("ref.now", { n: voiceName(stand) }))}</p>` : "") +
      "</div>";
  root.innerHTML = `<div class="kk kk-health"><p class="kk-empty">${esc(t("health.empty"))}</p>${
    demo
  }</div>`;
}
acts.demo = b => {
  pick.starter = b.dataset.id;
  store.set("starter", b.dataset.id);
  draw("health");
  draw("title_voice");
  playVoice(b.dataset.id);
};

function full(root, d, ui) {
  const r = d.report,
    list = warnings(d),
    open = list.filter(w => !w.done),
    tone = open.some(w => w.tone === "bad") ? "bad" : open.length ? "warn" : "ok";
  if (page.voice !== "open" || ui.fresh === undefined) {
    if (ui.fresh === undefined) {
      page.voice = tone === "bad" ? "open" : "folded";
      ui.fresh = false;
    }
    draw("title_voice");
  }
  const verdict = t({ ok: "health.good", warn: "health.fair", bad: "health.poor" }[tone], {
    n: open.length
  });
  const more = ui.open ?? matchMedia("(min-width: 641px) and (min-height: 1000px)").matches;
  root.innerHTML =
    `<div class="kk kk-health"><div class="kk-healthhead"><h3>${esc(t("health.title"))}</h3>
      <span class="kk-verdict" data-tone="${tone}">${ico(tone, 16)}${esc(verdict)}</span></div>` +
    refusal("health") +
    strip(d, r, ui) +
    cureList(list, ui) +
    (ui.tips ? `<p class="kk-inline" role="status">${esc(t("ref.tips"))}</p>` : "") +
    `<details class="kk-details" ${more ? "open" : ""}><summary>${esc(
      t("health.more")
    )}</summary>${details(d, r)}</details></div>`;
}

/* The clip's wave with its best windows as a radio group; a window of the visitor's own is framed
   without a number. */
function strip(d, r, ui) {
  const sel = isWhole(d) ? -1 : r.windows.findIndex(w => isSame(w, d));
  const place = w =>
    `left:${Math.max(0, Math.min(100, (w.start_s / r.duration_s) * 100)).toFixed(2)}%;` +
    `width:${((seconds(w) / r.duration_s) * 100).toFixed(2)}%`;
  const win = (w, i) => {
    const name = t("health.window.n", {
      n: i + 1,
      a: w.start_s.toFixed(1),
      b: w.end_s.toFixed(1),
      s: Math.round(w.score)
    });
    return `<button type="button" role="radio" tabindex="${i === Math.max(0, sel) ? 0 : -1}"
      aria-checked="${i === sel}"
        data-do="window" data-i="${i}" aria-label="${esc(name)}"
          style="${place(w)}"><span>${i + 1}</span></button>`;
  };
  const free = sel < 0 ? `<i class="kk-free" style="${place(d)}"></i>` : "";
  const used = isWhole(d) ? "health.used.all" : sel < 0 ? "health.used.part" : "health.used.n";
  const span = esc(t(used, { n: sel + 1, ...partOf(d) }));
  const whole =
    r.whole && !isWhole(d)
      ? `<button type="button" class="kk-link" data-do="whole">${esc(t("health.whole"))}</button>`
      : "";
  return (
    `<div class="kk-strip" role="radiogroup" aria-label="${esc(t("health.window"))}">` +
    `${bars(r.peaks || [])}${free}${r.windows.map(win).join("")}<i class="kk-at"
      hidden></i></div>
    <div class="kk-striprow"><span class="kk-num">${span}</span>${whole}<button type="button"
      class="kk-link"
      data-do="playpart">${ico(ui.sounding ? "stop" : "play", 14)}${esc(
        t(ui.sounding ? "health.stop" : "health.play")
      )}</button></div>`
  );
}

function cureList(list, ui) {
  if (!list.length) return "";
  const shown = ui.all ? list : list.slice(0, 4),
    rest = list.length - shown.length;
  const row = w => {
    const tone = w.done ? "ok" : w.tone,
      cure = w.done ? t("w.undo") : t(`w.${w.code}.fix`);
    const words = t(w.done && w.code === "speakers" ? "health.one_speaker" : "w." + w.code, w);
    const button =
      w.done && w.code === "speakers"
        ? ""
        : `<button type="button" data-do="fix"
        data-code="${w.code}">${esc(cure)}</button>`;
    return `<li class="kk-warn" data-tone="${tone}">${ico(tone)}<span>${esc(words)}${
      w.moved && ` <b class="kk-num">${esc(w.moved)}</b>`
    }</span>${button}</li>`;
  };
  return (
    `<ul class="kk-warns">${shown.map(row).join("")}</ul>` +
    (rest
      ? `<button type="button" class="kk-link" data-do="morewarns">${esc(
          t("health.more.n", { n: rest })
        )}</button>`
      : "")
  );
}

function details(d, r) {
  const ui = card().ui,
    worse = d.worse || ui.worse,
    ab = ui.ab || "a";
  const fact = (k, v, unit, level = "") => {
    const word = level ? `<em>${esc(t(level === "bad" ? "health.bad" : "health.meh"))}</em>` : "";
    return (
      `<div><dt>${esc(t("health." + k))}</dt><dd class="kk-num"${
        level ? ` data-tone="${level}"` : ""
      }>${v}` + `<small>${unit}</small>${word}</dd></div>`
    );
  };
  const edge = (k, v, key) =>
    `<input type="range" min="0" max="${r.duration_s.toFixed(1)}" step="0.1"
      value="${v.toFixed(1)}" data-edge="${k}"
        aria-label="${esc(t(key))}" aria-valuetext="${esc(t("vo.sec", { d: v.toFixed(1) }))}">`;
  const side = v => `<button type="button" role="radio" tabindex="${ab === v ? 0 : -1}"
      aria-checked="${ab === v}"
        data-do="ab" data-v="${v}">${ico("play", 14)}${esc(t("dn." + v))}</button>`;
  const is = (key, cured) => (cured && d.after ? d.after[key] : r[key]);
  const was = (key, cured) =>
    cured && d.after ? `<small class="kk-was">${plain(d.before[key])} → </small>` : "";
  const snr = is("snr_db", d.clean > 0),
    lufs = is("loudness_lufs", d.gain);
  const facts = [
    fact("dur", r.duration_s.toFixed(1), "s"),
    fact("speech", Math.round(r.speech_ratio * 100), "%", r.speech_ratio < 0.3 ? "warn" : ""),
    fact(
      "snr",
      was("snr_db", d.clean > 0) + Math.round(snr),
      "dB",
      snr < 12 ? "bad" : snr < 20 ? "warn" : ""
    ),
    fact("clip", (r.clipping_ratio * 100).toFixed(1), "%", r.clipping_ratio > 0.005 ? "bad" : ""),
    fact("lufs", was("loudness_lufs", d.gain) + plain(lufs), "LUFS", lufs < -30 ? "warn" : ""),
    fact("band", (r.bandwidth_hz / 1000).toFixed(0), "kHz", r.bandwidth_hz < 5000 ? "bad" : "")
  ];
  return (
    `<dl class="kk-facts">${facts.join("")}</dl>
    <div class="kk-edges" role="group" aria-label="${esc(t("health.edges"))}"><span>${esc(
      t("health.edges")
    )}</span>` +
    edge("start", d.start_s, "health.edge.a") +
    edge("end", d.end_s, "health.edge.b") +
    `</div>
    <div class="kk-ab"><div class="kk-seg2" role="radiogroup"
      aria-label="${esc(t("dn.label"))}">${["a", "b"].map(side).join("")}</div>
      <label class="kk-amount"><span>${esc(t("dn.amount"))} <output
        class="kk-num">${amount(d)}%</output></span><input
        type="range" min="0" max="100" step="5" value="${amount(d)}" data-amount
          aria-valuetext="${amount(d)}%"></label>
      <label class="kk-switch"><span>${esc(t("dn.kind"))}</span><select id="kk-noise">${[
        "steady",
        "varying"
      ]
        .map(
          k => `<option
          value="${k}"${(k === "varying") === !!d.varying ? " selected" : ""}>${esc(
            t("dn." + k)
          )}</option>`
        )
        .join("")}</select></label>
      <label class="kk-switch"><input type="checkbox" id="kk-useclean"
          ${d.clean > 0 ? "checked" : ""}>${esc(t("dn.use"))}</label></div>` +
    (worse ? `<p class="kk-inline" data-tone="warn" role="status">${esc(t("dn.worse"))}</p>` : "")
  );
}
/* The words under the transcript's field: of which part they must be, and the tick that says that
   they are. */
parts.fit = root => {
  const d = draft(),
    ui = card()?.ui || {},
    words = field("kk-transcript")?.value.trim();
  const tick = () =>
    `<label class="kk-switch"><input type="checkbox"
      id="kk-fits"${ui.fits ? " checked" : ""}>${esc(t("fit.tick", partOf(d)))}</label>` +
    (ui.fits ? "" : `<p class="kk-inline" data-tone="warn" role="status">${esc(t("fit.off"))}</p>`);
  const read =
    words && words === ui.read
      ? `<p class="kk-inline" data-tone="warn" role="status">${esc(t("fit.read"))}</p>`
      : "";
  root.innerHTML = !d
    ? ""
    : `<div class="kk kk-fit">${read}${
        words
          ? tick()
          : `<p
      class="kk-inline">${esc(t("fit.empty", partOf(d)))}</p>`
      }</div>`;
};
export const health = {
  isWhole,
  pace,
  card,
  data,
  amountOf: amount,
  isCleaned,
  amount: () => amount(data()) / 100
};
/* On a phone a usable voice folds into one line, so that the text field is on the first screen.
   State on <html>: re-renders cannot lose it. */
parts.title = (root, d) => {
  root.innerHTML = `<div class="kk kk-cardhead"><h2
    class="kk-h2">${esc(t(d.t))}</h2>${
      d.s
        ? `<span
      class="kk-sub">${esc(t(d.s))}</span>`
        : ""
    }</div>`;
};
parts.title_voice = (root, d) => {
  recount(); // each voice has its own pace
  const now = voiceNow();
  if (now)
    // the text comes first; with no voice to speak there is nothing to fold
    page.voice ||= "folded";
  else if (page.voice) page.voice = "open";
  const folded = page.voice === "folded",
    line = !now
      ? ""
      : now.draft
        ? `${t("ref.label")} · ${t("vo.sec", {
            d: (now.draft.end_s - now.draft.start_s).toFixed(1)
          })}`
        : voiceName(now.voice);
  root.innerHTML = `<div class="kk kk-cardhead"><h2 class="kk-h2">${esc(t(d.t))}</h2><span
        class="kk-sub kk-foldhide">${esc(t(d.s))}</span><span
        class="kk-sub kk-foldshow kk-num">${esc(line)}</span>${
          now
            ? `<button type="button" class="kk-link kk-fold"
        data-do="fold" aria-expanded="${!folded}">${esc(
          t(folded ? "voice.change" : "voice.fold")
        )}</button>`
            : ""
        }</div>`;
};
acts.fold = () => {
  page.voice = page.voice === "folded" ? "open" : "folded";
  draw("title_voice");
  live.title_voice.root.querySelector(".kk-fold")?.focus({
    preventScroll: true
  });
};
