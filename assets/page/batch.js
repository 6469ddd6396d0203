// @ts-check
/* The tab Batch, left: texts come in, what will be made of them is shown, and the whole is handed
   in. Blind to jobs that are there already. */
import { player } from "../player/controller.js";
import { acts } from "./acts.js";
import { showJob } from "./batch_jobs.js";
import { batchDecode, batchFields, batchRows, batchText } from "./batch_parser.js";
import { hasNatural } from "./engine_status.js";
import { strings } from "./facts.js";
import { chosen, tabNow } from "./fields.js";
import { lastParams, regenerate } from "./generation.js";
import { ico } from "./icons.js";
import { live, parts } from "./parts.js";
import { store } from "./store.js";
import { lang, t } from "./strings.js";
import { askStudio } from "./studio_api.js";
import { esc } from "./text.js";
import { characters } from "./text_measure.js";
import { touch } from "./theme.js";
import { modelOf, voiceName, voices } from "./voice_choice.js";

const SHOWN = 8,
  MORE = 50,
  MAX = 10000,
  MAX_TEXT = 4096,
  MAX_FILE = 8 << 20,
  MODES = ["auto", "zero_shot", "cross_lingual", "instruct", "preset"];
const ui = {
  raw: "",
  kind: "",
  name: "",
  voice: store.get("batchvoice") || "",
  speaks: store.get("batchspeaks") || "auto",
  seed: "",
  rows: [],
  say: null,
  sending: false,
  shown: SHOWN,
  asks: false
};
const root = () => live.batch?.root;

// ---- what is wrong with a row, before it is sent ----------------------------------------------
const usable = () => voices();
const find = name => usable().find(v => [v.id, v.name, v.name_zh].includes(name));
function problem(r) {
  if (r.problem) return t("ba.e.json");
  if (!/[\p{L}\p{N}]/u.test(r.text || "")) return t("ba.e.empty");
  if ([...r.text].length > MAX_TEXT) return t("ba.e.long", { n: MAX_TEXT });
  if (r.voice && !find(r.voice)) return t("ba.e.voice", { v: r.voice });
  if (r.mode && !MODES.includes(r.mode)) return t("ba.e.mode", { v: r.mode });
  if (
    r.language &&
    !strings.en["lang." + r.language.toLowerCase().split(/[-_]/)[0]] &&
    r.language !== "auto"
  )
    return t("ba.e.language", { v: r.language });
  if (r.seed && !/^(-1|\d{1,15})$/.test(r.seed)) return t("ba.e.seed");
  if (r.speed && !(+r.speed >= 0.25 && +r.speed <= 4)) return t("ba.e.speed");
  return "";
}
const bad = () => ui.rows.map((r, i) => [i + 1, problem(r)]).filter(([, why]) => why);

// ---- drawing ----------------------------------------------------------------------------------
const voiceOptions = () =>
  usable()
    .map(
      v =>
        `<option value="${esc(v.id)}"${v.id === ui.voice ? " selected" : ""}>${esc(
          voiceName(v)
        )}</option>`
    )
    .join("");
const kinds = () =>
  ["auto", "natural", "instant"]
    .map(
      v => `<option value="${v}"${v === ui.speaks ? " selected" : ""}>${esc(t("ve." + v))}</option>`
    )
    .join("");
/* The list has changed: only the field follows, what is typed beside it stays as it is. */
export const batchVoices = () => {
  if (!find(ui.voice))
    ui.voice = voices().find(v => v.language === lang)?.id || voices()[0]?.id || "";
  const field = root()?.querySelector("#kk-batchvoice");
  if (field) field.innerHTML = voiceOptions();
  show();
};
parts.batch = box => {
  if (!find(ui.voice))
    ui.voice = voices().find(v => v.language === lang)?.id || voices()[0]?.id || "";
  box.innerHTML = `<section class="kk kk-batch" aria-labelledby="kk-batch-h"><div
    class="kk-cardhead"><h2 class="kk-h2" id="kk-batch-h">${esc(t("ba.new"))}</h2>
    <p class="kk-sub">${esc(t("ba.new.sub", { n: MAX.toLocaleString(lang) }))}</p></div>
    <label class="kk-field"><span>${esc(t("ba.text"))}</span><textarea id="kk-batchtext" rows="8"
      spellcheck="false" placeholder="${esc(
        t(touch.matches ? "ba.place.tap" : "ba.place")
      )}">${esc(ui.raw)}</textarea></label>
    <div class="kk-row kk-batchfile"><button type="button" class="kk-b2"
      data-do="batchfile">${ico("up", 16)}${esc(t("ba.file"))}</button>
      <span class="kk-sub kk-num" id="kk-batchcount"></span></div>
    <div id="kk-batchpreview"></div>
    <div class="kk-batchset"><label class="kk-field"><span>${esc(t("ba.voice"))}</span><select
      id="kk-batchvoice">${voiceOptions()}</select></label>
      <label class="kk-field kk-batchve"><span>${esc(t("ve.label"))}</span><select
        id="kk-batchspeaks">${kinds()}</select></label>
      <label class="kk-field"><span>${esc(t("ba.seed"))}</span><input type="text"
        id="kk-batchseed" inputmode="numeric" autocomplete="off"
          value="${esc(ui.seed)}"></label></div>
    <p class="kk-inline" id="kk-batchsay" role="status"></p><div class="kk-row" id="kk-batchask"
      role="alert"></div>
    <div class="kk-row"><button type="button" class="kk-b2 kk-primary" id="kk-batchgo"
      data-do="batchgo">${ico("play", 16)}${esc(t("ba.start"))}</button></div></section>`;
  show();
};
const cell = (r, f) =>
  f === "voice" ? (v => (v ? voiceName(v) : r.voice || ""))(find(r.voice)) : r[f] || "";
const head = f => `<th scope="col">${esc(t("ba.col." + f))}</th>`;
/* Everything that follows what is typed; the fields themselves stay. */
function show() {
  const box = root();
  if (!box) return;
  const { rows } = ui,
    chars = rows.reduce((n, r) => n + characters(r.text || "").length, 0),
    fields = batchFields([{ text: "-" }, ...rows]),
    wrong = new Map(/** @type {[any, any][]} */ (bad()));
  box.querySelector("#kk-batchcount").textContent = rows.length
    ? t("ba.count", { n: rows.length, c: chars })
    : "";
  const row = ([n, why]) =>
    `<tr${why ? ' data-tone="bad"' : ""}><td class="kk-num">${n}${
      why ? ico("bad", 16) : tryButton(n)
    }</td>${fields
      .map(
        (f, i) =>
          `<td>${esc(cell(rows[n - 1], f))}${why && !i ? `<small>${esc(why)}</small>` : ""}</td>`
      )
      .join("")}</tr>`;
  // those that have a problem, and then the first of the others
  const seen = [
    ...[...wrong].slice(0, MORE),
    ...[...rows.keys()]
      .slice(0, ui.shown)
      .filter(i => !wrong.has(i + 1))
      .map(i => [i + 1])
  ];
  const left = rows.length - ui.shown;
  const more =
    left > 0
      ? `<button type="button" class="kk-link" data-do="batchmore">${esc(
          t("ba.more", { n: left })
        )}</button>`
      : "";
  box.querySelector("#kk-batchpreview").innerHTML = rows.length
    ? `<div class="kk-tablebox" tabindex="0" role="region"
      aria-label="${esc(t("ba.preview"))}"><table><thead><tr>
    <th scope="col">${esc(t("ba.col.n"))}</th>${fields
      .map(head)
      .join("")}</tr></thead><tbody>${seen.map(row).join("")}</tbody></table></div>${more}`
    : "";
  const say = box.querySelector("#kk-batchsay"),
    told =
      ui.say ||
      (wrong.size ? { tone: "bad", text: wrongWords([...wrong]) } : { tone: "", text: "" });
  const good = rows.length - wrong.size,
    ask = ui.asks && wrong.size && good;
  box.querySelector("#kk-batchask").innerHTML = ask
    ? `<p class="kk-ask">${esc(t("ba.skip", { n: wrong.size }))}</p>
    <button type="button" class="kk-b2 kk-primary"
      data-do="batchrest">${esc(t("ba.rest", { n: good }))}</button>
    <button type="button" class="kk-b2" data-do="batchback">${esc(t("ba.back"))}</button>`
    : "";
  say.textContent = told.text;
  say.dataset.tone = told.tone;
  box.querySelector("#kk-batchgo").disabled = ui.sending;
  box.querySelector("#kk-batchgo").hidden = !!ask;
  paintTry();
}
function wrongWords(list) {
  const [n, why] = list[0];
  return t("ba.bad", { n, why }) + (list.length > 1 ? t("ba.badmore", { n: list.length - 1 }) : "");
}
function said(text, tone = "bad") {
  ui.say = { text, tone };
  show();
}

// ---- texts come in ----------------------------------------------------------------------------
function take(raw, kind = "", name = "") {
  Object.assign(ui, {
    raw,
    kind,
    name,
    rows: batchRows(raw, kind),
    say: null,
    asks: false,
    shown: SHOWN
  });
  if (ui.rows.length > MAX) ui.say = { text: t("ba.e.many", { n: MAX }), tone: "bad" };
  show();
}
async function bring(file) {
  try {
    if (file.size > MAX_FILE) throw new Error("large");
    const raw = batchDecode(await file.arrayBuffer()),
      kind = (file.name.match(/\.(\w+)$/)?.[1] || "txt").toLowerCase();
    root().querySelector("#kk-batchtext").value = raw;
    take(raw, kind, file.name.replace(/\.\w+$/, ""));
  } catch {
    said(t("ba.e.file"));
  }
}
acts.batchfile = () => {
  const pick = Object.assign(document.createElement("input"), {
    type: "file",
    accept: ".txt,.csv,.tsv,.jsonl,.ndjson"
  });
  pick.addEventListener("change", () => pick.files[0] && bring(pick.files[0]));
  pick.click();
};
for (const name of ["dragover", "drop"])
  document.addEventListener(
    name,
    e => {
      if (tabNow() !== "batch" || !e.target.closest?.(".kk-batch")) return;
      e.preventDefault();
      e.stopPropagation();
      if (name === "drop" && e.dataTransfer.files[0]) bring(e.dataTransfer.files[0]);
    },
    true
  );
let later = 0;
document.addEventListener("input", e => {
  if (e.target.id === "kk-batchtext") {
    clearTimeout(later);
    later = setTimeout(take, e.target.value.length > 20000 ? 250 : 0, e.target.value);
  }
  if (e.target.id === "kk-batchseed") ui.seed = e.target.value.trim();
});
document.addEventListener("change", e => {
  if (e.target.id === "kk-batchspeaks") store.set("batchspeaks", (ui.speaks = e.target.value));
  if (e.target.id !== "kk-batchvoice") return;
  ui.voice = e.target.value;
  store.set("batchvoice", ui.voice);
});
document.addEventListener("kk:ready", () => batchVoices());

// ---- and are handed in ------------------------------------------------------------------------
const number = x => (x === undefined || x === "" ? undefined : Number(x));
const wanted = r => ({
  input: r.text,
  voice: find(r.voice)?.id || ui.voice,
  mode: r.mode || undefined,
  instructions: r.instructions,
  language: r.language,
  model: r.model || undefined,
  seed: number(r.seed),
  speed: number(r.speed)
});
/* `skips`: the user has agreed that lines with a problem are left out; they stay in the field. */
export const startBatch = async (skips = false) => {
  if (ui.sending) return;
  clearTimeout(later);
  const text = root().querySelector("#kk-batchtext");
  if (text.value !== ui.raw) take(text.value, ui.kind);
  const wrong = bad();
  if (!ui.rows.length) {
    said(t("ba.none"));
    return text.focus();
  }
  if (ui.rows.length > MAX) return said(t("ba.e.many", { n: MAX }));
  if (wrong.length && !(skips && wrong.length < ui.rows.length)) {
    ui.asks = true;
    said(wrongWords(wrong));
    return root().querySelector("[data-do=batchrest]")?.focus();
  }
  if (ui.seed && !/^\d{1,15}$/.test(ui.seed)) return said(t("ba.e.seed"));
  ui.sending = true;
  show();
  const bads = new Set(wrong.map(([n]) => n)),
    good = ui.rows.filter((_, i) => !bads.has(i + 1)),
    rest = ui.rows.filter((_, i) => bads.has(i + 1));
  const name = ui.name || good[0].text.slice(0, 40);
  const made = await askStudio("POST", "/v2/synthesize/batch", {
    requests: good.map(wanted),
    seed: number(ui.seed),
    name,
    async: true,
    ...(hasNatural() ? modelOf(ui.speaks) : {})
  });
  ui.sending = false;
  if (made.error) return said(made.error);
  text.value = batchText(rest);
  take(text.value);
  said(
    t("ba.started", { n: made.total }) + (rest.length ? t("ba.left", { n: rest.length }) : ""),
    "ok"
  );
  showJob(made.id);
};
acts.batchgo = () => startBatch();
acts.batchrest = () => startBatch(true);
acts.batchback = () => {
  ui.asks = false;
  show();
  root().querySelector("#kk-batchtext").focus();
};
acts.batchmore = () => {
  ui.shown += MORE;
  show();
  root().querySelector("[data-do=batchmore], .kk-tablebox").focus();
};

// ---- one row, alone, before anything is handed in: by the player, as any text -----------------
const tryButton = n =>
  `<button type="button" class="kk-iconb" data-do="batchtry" data-n="${n}"
    aria-label="${esc(t("ba.try", { n }))}">${ico("play", 16)}</button>`;
let tried = null; // what the player speaks of a row
const isTried = r => tried?.row === r && tried.params === lastParams;
acts.batchtry = b => {
  const r = ui.rows[b.dataset.n - 1];
  if (isTried(r) && player.state !== "failed") return player.toggle();
  const { input, voice, mode, instructions, language, model, seed, speed } = wanted(r);
  const params = {
    input,
    voice,
    mode: mode || "auto",
    instructions: instructions || "",
    language: language || "auto",
    speed: speed ?? 1,
    seed: seed ?? number(ui.seed) ?? -1,
    profile: chosen("kk-hop", "fast"),
    transcript: "",
    consent: false,
    ...(model ? { model } : hasNatural() ? modelOf(ui.speaks) : {})
  };
  tried = { row: r, params };
  regenerate(params);
};
function paintTry() {
  root()
    ?.querySelectorAll("[data-do=batchtry]")
    .forEach(b => {
      const on = isTried(ui.rows[Number(b.dataset.n) - 1]) && player.sounding,
        look = on ? "pause" : "play";
      if (b.dataset.look === look) return;
      b.dataset.look = look;
      b.innerHTML = ico(look, 16);
    });
}
document.addEventListener("kk:player", paintTry);
