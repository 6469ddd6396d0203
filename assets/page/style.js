// @ts-check
/* Style: chips of dialect, emotion and manner, the instruction that they write, and where a style
   applies at all. What does not apply stays chosen, is not sent, and the reason stands beside it.
*/
import { acts } from "./acts.js";
import { engine, hasNatural } from "./engine_status.js";
import { field, mode, setField, setMode } from "./fields.js";
import { remembered } from "./form_values.js";
import { draw, live, parts } from "./parts.js";
import { lang, t } from "./strings.js";
import { esc } from "./text.js";
import { isTold, noClip } from "./voice_choice.js";

const GROUPS = {
  dialect: [
    "sichuan",
    "yue",
    "dongbei",
    "tianjin",
    "henan",
    "shaanxi",
    "shandong",
    "shanghai",
    "minnan",
    "hunan",
    "gansu",
    "guizhou",
    "hubei",
    "jiangxi",
    "ningxia",
    "shanxi",
    "yunnan"
  ],
  emotion: ["happy", "sad", "angry", "calm", "surprise", "fear"],
  pace: ["gentle", "whisper", "soft", "loud", "fast", "slow", "news", "story", "robot", "peppa"]
};
/* Of the third generation; where they cannot be had there is no word of them. Others that cannot
   are grey. */
const SELDOM = [
  "gansu",
  "guizhou",
  "hubei",
  "jiangxi",
  "ningxia",
  "shanxi",
  "yunnan",
  "soft",
  "loud",
  "robot",
  "peppa"
];
const LETTER = { dialect: "d", emotion: "e", pace: "p" };
/* What shows that a dialect's own wording is already there; other dialects are not judged. */
const WORDING = {
  yue: /[嘅咗喺唔冇佢哋嚟啲咁]/,
  sichuan: /啥子|咋个|巴适|晓得|要得|格老子|安逸|莫得/,
  dongbei: /整|咋|嘎哈|贼|啥|埋汰|杠杠/,
  shanghai: /侬|阿拉|伐|额|辰光/
};
const picked = { dialect: "", emotion: "", pace: "" };
let before = "zero_shot",
  language = lang; // the mode to go back to; the language that the chips wrote in
const text = () => field("kk-text")?.value || "";
const instructField = () => field("kk-instruct");
const isPicked = () => Object.values(picked).some(Boolean);

// ---- where a style applies --------------------------------------------------------------------
const has = k => {
  const s = engine().styles;
  return !s?.length || s.includes(k);
};
/* The key of the sentence that says why no style can be chosen here; "" where one can. */
const refusal = () =>
  engine().modes?.includes("instruct") === false
    ? "style.no.engine"
    : noClip()
      ? "style.no.preset"
      : "";
/* Chosen in another mode than this one, which follows none. */
const rests = () => !refusal() && !isTold() && (isPicked() || !!instructField()?.value.trim());
/* A text without Chinese in it, or another language asked for: no dialect changes how that is
   said. */
function isForeign() {
  const asked = remembered().language || "auto";
  if (asked !== "auto") return !["zh", "yue"].includes(asked);
  return (
    /\p{L}/u.test(text()) &&
    (!/\p{Script=Han}/u.test(text()) ||
      /[\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/u.test(text()))
  );
}
/* A dialect is chosen and the text is worded as Mandarin is. */
function isMandarin() {
  const own = WORDING[picked.dialect];
  return !!own && /\p{Script=Han}/u.test(text()) && !own.test(text());
}
const ofText = () => `${isForeign()} ${isMandarin()}`; // all that a text changes here
const applies = (g, k) => has(k) && !(g === "dialect" && isForeign());

// ---- drawing ----------------------------------------------------------------------------------
let drawn = "",
  drawnText = "";
function chip(g, k, refused) {
  const isTrial = engine().trial_styles?.includes(k),
    isOff = refused || !applies(g, k),
    reason = refused || has(k) ? "kk-style-why" : "kk-style-grey";
  const off = isOff
    ? ` aria-disabled="true" aria-describedby="${reason}"`
    : isTrial
      ? ` title="${esc(t("style.trial"))}"`
      : "";
  return (
    `<button type="button" class="kk-chip" data-do="style" data-g="${g}" data-v="${k}"
      aria-pressed="${picked[g] === k}"${off}>${esc(t(`${LETTER[g]}.${k}`))}` +
    (isTrial
      ? `<span class="kk-trial"></span><span class="kk-vh">（${esc(t("style.trial"))}）</span>`
      : "") +
    "</button>"
  );
}
parts.style = root => {
  const refused = refusal(),
    why = refused || (rests() ? "style.rests" : isForeign() ? "style.no.dialect" : "style.opt");
  const shown = g => GROUPS[g].filter(k => engine().styles?.includes(k) || !SELDOM.includes(k));
  const link = (what, key) =>
    `<button type="button" class="kk-link" data-do="${what}">${esc(t(key))}</button>`;
  const grey = refused
    ? ""
    : engine().basic
      ? hasNatural()
        ? "style.both"
        : "style.basic"
      : Object.keys(GROUPS).some(g => !shown(g).every(has))
        ? "style.grey"
        : "";
  const html =
    `<div class="kk kk-style"><div class="kk-note"><h3>${esc(t("style.title"))}</h3><span
      id="kk-style-why">${esc(t(why))}</span><span>` +
    (rests() || refused === "style.no.preset" ? link("usestyle", "style.use") : "") +
    (isPicked() && !refused ? link("nostyle", "style.clear") : "") +
    "</span></div>" +
    Object.keys(GROUPS)
      .map(
        g => `<span id="kk-g-${g}">${esc(t("style." + g))}</span><div class="kk-chips kk-scroll"
          role="group"
        aria-labelledby="kk-g-${g}">${shown(g)
          .map(k => chip(g, k, refused))
          .join("")}</div>`
      )
      .join("") +
    (why === "style.opt" && isMandarin()
      ? `<p class="kk-inline kk-wide" data-tone="warn"
        role="status">${esc(t("style.mandarin", { d: t("d." + picked.dialect) }))}</p>`
      : "") +
    (grey ? `<p class="kk-sub kk-wide" id="kk-style-grey">${esc(t(grey))}</p>` : "") +
    "</div>";
  drawnText = ofText();
  if (html !== drawn || !root.firstChild) root.innerHTML = drawn = html;
  const el = instructField();
  if (!el) return;
  el.readOnly = !!refused;
  if (refused) el.setAttribute("aria-disabled", "true");
  else el.removeAttribute("aria-disabled");
  if (refused || rests()) el.setAttribute("aria-describedby", "kk-style-why");
  else el.removeAttribute("aria-describedby");
};

// ---- choosing ---------------------------------------------------------------------------------
acts.style = b => {
  if (b.getAttribute("aria-disabled")) return;
  const { g, v } = b.dataset;
  picked[g] = picked[g] === v && !rests() ? "" : v; // one that rests is taken up again
  language = lang;
  if (mode() !== "instruct") before = mode();
  write();
  setMode(isPicked() ? "instruct" : before);
  draw("style");
};
acts.usestyle = () => {
  before = mode();
  setMode("instruct");
  document.querySelector("#kk-mode input[value=instruct]")?.focus();
};
/* The sentence of all that is chosen and applies, in the language it was chosen in: a page in
   another language asks for the same. */
function write() {
  const on = g => picked[g] && applies(g, picked[g]),
    say = (key, vars) => t(key, vars, language);
  const list = [
    on("dialect") && say("i.dialect", { d: say("d." + picked.dialect) }),
    on("emotion") && say("i." + picked.emotion),
    on("pace") && say("i." + picked.pace)
  ].filter(Boolean);
  const sentence = list.length
    ? say("i.say", { w: list.join(language === "zh" ? "、" : ", ") })
    : "";
  if (instructField() && instructField().value !== sentence) setField("kk-instruct", sentence);
}
const unpick = () =>
  Object.keys(picked).forEach(k => {
    picked[k] = "";
  });
acts.nostyle = () => {
  unpick();
  write();
  if (mode() === "instruct") setMode(before);
  draw("style");
};
export const unstyle = () => {
  unpick();
  draw("style");
};
/* Text, engine, mode or language have changed: what is chosen may apply no more, or again. */
export const restyle = () => {
  if (!live.style) return;
  if (isPicked()) write();
  draw("style");
};
document.addEventListener("kk:text", () => ofText() !== drawnText && restyle());
["kk:engine", "kk:mode", "kk:ready"].forEach(n => document.addEventListener(n, restyle));
document.addEventListener("input", e => {
  // typing an instruction means that mode; the chips no longer speak for it
  if (!e.target.closest?.("#kk-instruct") || !e.isTrusted) return;
  if (e.target.value && mode() !== "instruct") {
    before = mode();
    setMode("instruct");
  }
  unstyle();
});
