// @ts-check
/* The header: brand, engine pill with its pop-over, language, theme, keys; the banner of a shared
   page; and the toast. */
import { acts } from "./acts.js";
import { facts, mac, strings, studioUrl } from "./facts.js";
import { ico } from "./icons.js";
import { draw, live, parts, send } from "./parts.js";
import { lang, t } from "./strings.js";
import { esc } from "./text.js";
import { themeNow } from "./theme.js";

/* A request can be for either of two voices; while the natural one loads the instant one speaks
   in its place, and says so. */
export const hasNatural = () => ["starting", "ready", "slow"].includes(engine().natural);
const why = e => (lang === "zh" ? e.reason_zh || e.reason : e.reason) || "";
const TONE = {
  starting: "work",
  restarting: "warn",
  broken: "bad",
  offline: "bad",
  slow: "warn"
};
const STATES = ["starting", "ready", "busy", "broken", "offline"];
export const engine = () => live.header?.data || { state: "starting" };
// which of the engine's voices speaks where none is asked for
export const usualVoice = () => Object.keys(engine().voice_engines || {})[0] || "";

const mark =
  '<svg width="26" height="26" viewBox="0 0 26 26" fill="none"' +
  ' stroke="currentColor" stroke-width="2.6" stroke-linecap="round" aria-hidden="true">' +
  '<path d="M17 3.5H7A3.5 3.5 0 0 0 3.5 7v12A3.5 3.5 0 0 0 7 22.5h10"/>' +
  '<path d="M13 10v6M18 7.5v11M23 11v4"/></svg>';
const circle = (colour, rest) =>
  `<circle cx="8" cy="8" r="6.5" fill="none" stroke="var(--kk-${colour})"
    stroke-width="2.5"${rest}/>`;
const ring = p =>
  `<svg class="kk-ringp" width="16" height="16" viewBox="0 0 16 16"
    aria-hidden="true">${circle("line", "")}` +
  circle("accent", ` stroke-dasharray="${Math.max(4, p * 40.84).toFixed(1)} 41"`) +
  "</svg>";
const dot = '<span class="kk-dot"></span>';

/* What the pill says of the engine that speaks: state, words, and the honest lines of its
   pop-over. */
function words(e) {
  const n = e.streams || 0;
  let state = STATES.includes(e.state) ? e.state : "ready";
  if (state === "starting" && e.restarting) state = "restarting";
  if (state === "ready" && n > 1) state = "busy";
  if (state === "ready" && !e.basic && e.rtf > 1) state = "slow";
  const own =
    e.natural === "ready"
      ? "eng.natural"
      : e.natural === "starting"
        ? "eng.both"
        : upcoming(e)
          ? "eng.builtin"
          : "eng.ready";
  const name = e.basic ? t(own) : t("eng.full", { e: e.name });
  const main =
    state === "ready" ? name : state === "busy" ? doing(e) : t("eng." + state, { n, e: e.name });
  const lines = [];
  if (e.state === "starting") lines.push(why(e) || t("eng.d.starting"));
  if (state === "restarting") lines.push(t("eng.d.restarting"));
  if (e.state === "broken") lines.push(why(e) || t("eng.d.broken"));
  if (e.handing_over) lines.push(t("eng.d.handover"));
  if (e.state === "offline") lines.push(t("eng.d.offline"));
  if (e.basic && e.state !== "offline")
    lines.push(
      t(
        e.natural === "ready"
          ? "eng.d.natural"
          : e.model?.state === "downloading"
            ? "eng.d.builtin"
            : "eng.d.basic"
      )
    );
  if (e.basic && e.voice_note?.length) lines.push(e.voice_note[lang === "zh" ? 1 : 0]);
  if (e.note?.length) lines.push(e.note[lang === "zh" ? 1 : 0]);
  if (["ready", "busy"].includes(e.state) && e.rtf) lines.push(pace(e));
  if (state === "slow") lines.push(t("eng.d.slow", { x: (+e.rtf).toFixed(1) }));
  if (n) lines.push(t("eng.d.busy", { n, q: e.waiting || 0 }));
  return {
    main,
    state,
    short: state === "busy" ? doing(e, ".s") : t(`eng.${state}.s`, { n }),
    lines
  };
}
/* Streams of the page and of programs, and lines of batches: counted as what they are, whoever
   asked for them. */
function doing(e, short = "") {
  const b = Math.min(e.batch_lines || 0, e.streams),
    n = e.streams - b;
  return t("eng.busy" + (b && !n ? ".lines" : b && !short ? ".both" : "") + short, {
    n: short ? n + b : n,
    b
  });
}
/* Measured here: the factor by the engine, the first sound by the newest take it made on this
   page. */
function pace(e) {
  const kind = usualVoice(),
    rtf = (+(e.voice_engines?.[kind] ?? e.rtf)).toFixed(2),
    is_its = k => k.engine === e.engine && k.voice_engine === kind && k.first_sound_ms != null,
    ms = (live.takes?.data || []).find(is_its)?.first_sound_ms;
  return ms == null ? t("eng.d.rtf", { rtf }) : t("eng.d.ready", { ms: Math.round(ms), rtf });
}
const NAMES = {
  cosyvoice1: "CosyVoice-300M",
  cosyvoice2: "CosyVoice2",
  cosyvoice3: "Fun-CosyVoice3"
};
const HERE = ["speaks", "loads", "failed", "here"]; // states of a model that is on the disk
export const modelList = () => engine().models || [];
export const modelsHere = () => modelList().filter(m => HERE.includes(m.state));
/* What a model is called: by its folder where that says it, or where there are several; else by
   its generation. */
export const modelName = (name, engine = "") => {
  if (
    name &&
    (modelsHere().length > 1 || (/^(Fun-)?CosyVoice/.test(name) && name !== "CosyVoice2-0.5B"))
  )
    return name;
  return NAMES[modelList().find(m => m.name === name)?.engine || engine] || engine;
};
const SOURCES = { modelscope: "ModelScope", "hf-mirror": "HF Mirror" };
/* Where the model comes from and, once changed, why; m.left is the source before this one. */
function origin(m) {
  const name = s => SOURCES[s] || s,
    o = m.left;
  if (!m.source || !o) return m.source ? t("eng.d.from", { s: name(m.source) }) : "";
  return t(why(o) ? "eng.d.instead" : "eng.d.changed", {
    s: name(m.source),
    o: name(o.source),
    why: why(o)
  });
}
const named = e => ({ ...e, name: e.engine ? modelName(e.title, e.engine) : "" });

/* The engine that is on its way, or why it is not: {tone, p, main, short, lines, acts}; null when
   there is nothing to tell. `model`: the files on disk; `coming`: loading and warming up;
   `failure`: it cannot be used, the built-in voice stays. */
function upcoming(e) {
  const m = e.model || {},
    p = m.p || 0,
    source = m.sources?.length > 1 ? [["modelsource", "eng.mirror"]] : [];
  const it = modelName(m.name, "cosyvoice2"),
    lost = modelName(e.failed, "cosyvoice2"),
    speaks = named(e).name;
  const told = {
    tone: "work",
    p: p / 100,
    main: t("eng.download", { p, e: it }),
    short: t("eng.download.s", { p }),
    lines: [],
    acts: []
  };
  const size = m.p == null ? t("eng.d.begin") : t(m.m == null ? "eng.d.size" : "eng.d.download", m);
  if (e.coming) {
    const q = Math.floor(100 * (e.coming.progress || 0)),
      line = why(e.coming);
    const main = t("eng.load", { p: q, e: modelName(e.next, "cosyvoice2") }),
      lines = [line ? t("eng.d.now", { s: line }) : t("eng.d.load")];
    return { ...told, p: e.coming.progress || 0, main, short: t("eng.load.s", { p: q }), lines };
  }
  if (m.state === "downloading")
    return { ...told, lines: [size, origin(m)], acts: [["modelpause", "eng.pause"], ...source] };
  if (m.state === "paused") {
    const lines = [m.p == null ? "" : t("eng.d.size", m), origin(m)];
    return {
      ...told,
      tone: "still",
      main: t("eng.paused", { p, e: it }),
      lines,
      acts: [["modelfetch", "eng.resume"], ...source]
    };
  }
  if (m.state === "failed") {
    const lines = [why(m) || t("eng.d.lost"), origin(m)],
      acts = [["modelfetch", "eng.again"], ...source];
    return {
      ...told,
      tone: "warn",
      main: t("eng.lost", { e: it }),
      short: t("eng.lost.s"),
      lines,
      acts
    };
  }
  const idle = modelsHere().find(x => x.state === "here")?.name;
  const fetchable = m.state === "none" && !idle ? [["modelfetch", "eng.fetch"]] : [];
  if (e.failure) {
    const stays = e.basic ? t("eng.d.stays") : t("eng.d.goes", { e: speaks });
    const lines =
      e.state === "broken" ? [] : [(lang === "zh" ? e.failure_zh : e.failure) || "", stays];
    const again = [...fetchable, ...(e.again ? [["engineagain", "eng.retry"]] : [])];
    return {
      ...told,
      tone: "warn",
      main: t("eng.cannot", { e: lost }),
      short: t("eng.cannot.s"),
      lines,
      acts: again
    };
  }
  if (idle && e.basic && !e.next)
    return {
      ...told,
      tone: "none",
      main: t("eng.here", { e: idle }),
      lines: [t("eng.d.here")],
      acts: [["modeluse", "md.use", idle]],
      offers: idle
    };
  if (m.state === "none" && e.basic && !e.next) {
    const lines = [m.b ? t("eng.d.none.b", m) : t("eng.d.none")];
    return { ...told, tone: "none", main: t("eng.none", { e: it }), lines, acts: fetchable };
  }
  return null;
}
export const tellEngine = async path => {
  try {
    const r = await fetch(studioUrl() + path, { method: "POST" });
    if (!r.ok) toast((await r.json().catch(() => null))?.error?.message || t("err.net"));
  } catch {
    toast(t("err.net"));
  }
  ask();
};
acts.modelsource = () => {
  const m = engine().model || {},
    at = m.sources.indexOf(m.source);
  tellEngine(
    "/tts/model/fetch?source=" + encodeURIComponent(m.sources[(at + 1) % m.sources.length])
  );
};
acts.modelfetch = () => tellEngine("/tts/model/fetch");
acts.modeluse = b => tellEngine("/tts/engine/use?model=" + encodeURIComponent(b.dataset.v));
acts.modelget = b => tellEngine("/tts/model/fetch?model=" + encodeURIComponent(b.dataset.v));
acts.engineagain = () => tellEngine("/tts/engine/again");
acts.modelpause = () => tellEngine("/tts/model/pause");

const keyRows = () => [
  [mac ? "⌘ ↵" : "Ctrl ↵", "key.go"],
  ["Esc", "key.stop"],
  ["Space", "key.play"],
  ["← →", "key.seek"],
  ["R", "key.rec"],
  ["/", "key.text"],
  ["D", "key.dice"],
  ["?", "key.help"]
];
parts.header = root => {
  if (!root.querySelector(".kk-head")) build(root);
  const e = named(engine()),
    w = words(e),
    next = e.state === "offline" ? null : upcoming(e),
    pill = root.querySelector(".kk-eng");
  const tone = next?.tone === "warn" ? "warn" : TONE[w.state] || "ok",
    ahead = next && next.tone !== "none";
  root
    .querySelectorAll(".kk-lang button")
    .forEach(b => b.setAttribute("aria-pressed", String(b.dataset.v === lang)));
  const theme = root.querySelector("[data-do=theme]");
  theme.innerHTML = ico(themeNow());
  theme.title = t("theme." + themeNow());
  theme.setAttribute("aria-label", `${t("theme.label")}: ${t("theme." + themeNow())}`);
  pill.dataset.tone = tone;
  pill.toggleAttribute("data-ahead", !!ahead);
  pill.innerHTML =
    `<span class="kk-vh">${esc(t("eng.label"))}: </span>` +
    sign(tone, e.progress) +
    `<span class="kk-engtext kk-num"><b>${esc(w.main)}</b></span>` +
    (ahead
      ? `<i></i><span class="kk-second kk-num">${next.tone === "work" ? ring(next.p) : ""}${esc(
          next.main
        )}</span>`
      : "") +
    `<span class="kk-engshort kk-num">${
      ahead ? (next.tone === "work" ? ring(next.p) : "") + esc(next.short) : esc(w.short)
    }</span>`;
  root.querySelector("#kk-engpop").innerHTML =
    `<h2>${esc(t("eng.label"))}</h2>` +
    row(TONE[w.state] || "ok", e.progress, w.main, w.lines) +
    (next ? row(next.tone, next.p, next.main, next.lines, next) : "") +
    others(e, /** @type {any} */ (next)?.offers) +
    `<p class="kk-engmodels"><button type="button" class="kk-link"
      data-do="report">${esc(t("eng.report"))}</button></p>`;
  root.querySelector("#kk-keys").innerHTML = `<h2>${esc(t("key.title"))}</h2><div
        class="kk-keys">${keyRows()
          .map(([k, s]) => `<kbd>${k}</kbd><span>${esc(t(s))}</span>`)
          .join("")}</div>`;
  root.querySelector(".kk-banner")?.replaceChildren(t("share.banner"));
  showLeave();
  follow(e);
};

const sign = (tone, p) => (tone === "work" ? ring(p || 0.1) : dot);
const row = (tone, p, main, lines, next = null) =>
  `<div class="kk-engrow" data-tone="${tone}">${sign(tone, p)}<b
    class="kk-num">${esc(main)}</b><span></span>` +
  (next && ["work", "still"].includes(tone)
    ? `<div class="kk-prog"><span style="width:${Math.round(p * 100)}%"></span></div>`
    : "") +
  lines
    .filter(Boolean)
    .map(l => `<p>${esc(l)}</p>`)
    .join("") +
  (next?.acts.length
    ? `<p class="kk-row">${next.acts
        .map(
          ([what, key, v = ""]) =>
            `<button type="button" class="kk-b2"
              data-do="${what}"${v && ` data-v="${esc(v)}"`}>${esc(t(key))}</button>`
        )
        .join("")}</p>`
    : "") +
  "</div>";

/* Other models of this disk, where there are any and none is on its way: one press and the next
   text is theirs. */
const others = (e, offered) => {
  const list = modelsHere().filter(
    m => (m.state === "here" || m.state === "failed") && m.name !== offered
  );
  return !list.length || e.next || e.state === "offline"
    ? ""
    : `<div class="kk-engmodels" role="group" aria-label="${esc(t("md.change"))}"><span
      class="kk-sub">${esc(t("md.change"))}</span>${list
        .map(
          m => `<button type="button" class="kk-b2" data-do="modeluse"
      data-v="${esc(m.name)}">${esc(m.name)}</button>`
        )
        .join("")}</div>`;
};

/* What the page offers follows what the engine can do, whoever told us: the page's first load, or
   a later question. */
let could = "";
function follow(e) {
  const can = JSON.stringify([
    e.engine,
    e.engine_version,
    e.state,
    e.basic,
    e.modes,
    e.preset_modes,
    e.told_clones,
    e.styles,
    e.tags,
    e.languages,
    e.natural,
    usualVoice()
  ]);
  if (live.models) draw("models");
  if (can === could) return;
  could = can;
  const page = document.documentElement;
  page.toggleAttribute("data-natural", hasNatural());
  if (e.modes) page.dataset.modes = e.modes.join(" ");
  queueMicrotask(() => {
    ["style", "under"].forEach(draw);
    document.dispatchEvent(new CustomEvent("kk:engine"));
  });
}

function build(root) {
  const lang = (v, tag, name) =>
    `<button type="button" data-do="lang" data-v="${v}" lang="${tag}"
      aria-label="${name}">${name.split(/[，,]/)[0]}</button>`;
  root.innerHTML =
    `<header class="kk kk-head">
    <a class="kk-skip" href="#kk-text" data-do="skip" data-t="nav.skip"></a>
    <div class="kk-brand">${mark}<h1 lang="zh-CN">${esc(strings.zh["app.name"])}</h1>
      <span lang="en">${esc(strings.en["app.name"])}</span></div>
    <div class="kk-space"></div>
    <button type="button" class="kk-eng" popovertarget="kk-engpop"></button>
    <div class="kk-lang" role="group" data-a="lang.label">${lang("zh", "zh-CN", "中，中文")}${lang(
      "en",
      "en",
      "EN, English"
    )}</div>
    <button type="button" class="kk-iconb" data-do="theme"></button>
    <button type="button" class="kk-iconb kk-help" data-do="help"
      data-a="help.label">${ico("help")}</button>
    <button type="button" class="kk-iconb kk-leave" data-do="logout" data-a="logout.label"
      data-tip="logout.label" hidden>${ico("leave")}</button>
    <div id="kk-engpop" popover></div><div id="kk-keys" popover></div></header>` +
    (facts.share ? '<p class="kk kk-banner" role="note"></p>' : "");
}
// ---- the way out, where there is a login to end -----------------------------------------------
let can_log_out = false;
const showLeave = () => {
  const b = live.header?.root.querySelector(".kk-leave");
  if (b) b.hidden = !can_log_out;
};
document.addEventListener("kk:session", e => {
  can_log_out = e.detail.can_log_out;
  showLeave();
});
acts.logout = async () => {
  try {
    const r = await fetch(studioUrl() + "/logout", { method: "POST" });
    if (r.ok || r.status === 401) return location.assign(studioUrl() + "/login");
  } catch {
    /* said below */
  }
  toast(t("err.net"));
};
acts.help = () => document.getElementById("kk-keys")?.togglePopover();

// ---- the engine's state: asked for rarely, never while nobody looks ---------------------------
const RARELY_MS = 30000,
  SOON_MS = 5000,
  MOVING_MS = 2000;
let timer = 0,
  pace_ms = SOON_MS,
  last = null; // last: what was heard before, so that a page that just opened announces nothing
let asked = 0,
  newest = null;
/* Settles when the newest question that was asked meanwhile is answered. */
const ask = every => (newest = hear(every));
async function hear(every) {
  if (every > 0) pace_ms = every;
  clearTimeout(timer);
  if (document.hidden || !live.header) return;
  const mine = ++asked;
  let next,
    is_heard = false;
  try {
    const r = await fetch(studioUrl() + "/tts/health", { cache: "no-store" });
    is_heard = r.ok;
    next = r.ok ? await r.json() : { ...engine(), state: "offline" };
  } catch {
    next = { ...engine(), state: "offline" };
  }
  // somebody asked again meanwhile: this answer may be the older of the two
  if (mine !== asked) return newest;
  // so is what the page was opened with, when it comes after this
  live.header.is_own ||= is_heard;
  if (JSON.stringify(engine()) !== JSON.stringify(next)) {
    live.header.data = next;
    draw("header");
  }
  if (last) announce(last, next);
  last = next;
  if (next.state !== "starting") pace_ms = SOON_MS;
  const moving =
    next.coming || next.natural === "starting" || next.next || next.model?.state === "downloading";
  clearTimeout(timer);
  timer = setTimeout(
    ask,
    moving ? MOVING_MS : ["ready", "busy"].includes(next.state) ? RARELY_MS : pace_ms
  );
}
/* Each change of who speaks is said once, politely; another engine brings voices of its own. */
function announce(before, next) {
  if (next.state === "offline" || before.state === "offline") return;
  const who = e => [e.engine, e.title, e.engine_version].join();
  const now = next.engine && who(next) !== who(before);
  if (now) toast(next.basic ? t("eng.now.ready") : t("eng.now.full", { e: named(next).name }));
  if (now) send("picker", { op: "list" });
  if (next.restarting && !before.restarting)
    toast(t("eng.now.restarting", { e: named(next).name }));
  if (before.restarting && !next.restarting && next.state === "ready" && !now)
    toast(t("eng.now.back", { e: named(next).name }));
  if (before.natural === "starting" && next.natural === "ready") toast(t("eng.now.natural"));
  const lost = e => (e.failure && e.state !== "broken" ? e.failed || "-" : "");
  const it = { e: modelName(next.failed, "cosyvoice2"), by: named(next).name };
  if (lost(next) && lost(next) !== lost(before))
    toast(t(next.basic ? "eng.now.cannot" : "eng.now.kept", it));
}
export const askEngine = ask;
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) ask();
});
document.addEventListener("kk:ready", () => ask());
// the studio says so over the page's socket
document.addEventListener("kk:enginechange", () => ask());
/* Whoever looks sees what is there now: models that were copied onto the disk meanwhile too. */
document.addEventListener(
  "toggle",
  e => {
    if (e.target.id === "kk-engpop" && e.newState === "open") ask();
  },
  true
);
document.addEventListener("kk:tab", e => {
  if (e.detail.tab === "settings") ask();
});

// ---- toast: one polite line, with at most one button ------------------------------------------
let away = 0;
export const toast = (text, button = "", then = null, ms = 5000) => {
  let el = document.getElementById("kk-toast");
  if (!el) {
    el = document.createElement("div");
    el.id = "kk-toast";
    el.className = "kk";
    el.setAttribute("role", "status");
    document.getElementById("kk-app")?.append(el);
  }
  clearTimeout(away);
  el.replaceChildren(
    Object.assign(document.createElement("span"), {
      textContent: text
    })
  );
  if (button) {
    const b = Object.assign(document.createElement("button"), {
      type: "button",
      className: "kk-link",
      textContent: button
    });
    b.addEventListener("click", () => {
      hideToast();
      then();
    });
    el.append(b);
  }
  el.dataset.on = "";
  away = setTimeout(hideToast, ms);
};
export const hideToast = () => {
  const el = document.getElementById("kk-toast");
  if (el) {
    delete el.dataset.on;
    el.replaceChildren();
  }
};
