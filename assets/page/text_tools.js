// @ts-check
/* Around the text: count, lint, sound tags, examples, the line that says what a mode is for. */
import { player } from "../player/controller.js";
import { acts } from "./acts.js";
import { lasting } from "./duration_estimate.js";
import { engine } from "./engine_status.js";
import { facts, studioUrl } from "./facts.js";
import { field, mode, setField, when } from "./fields.js";
import { remembered } from "./form_values.js";
import { ico } from "./icons.js";
import { draw, live, parts } from "./parts.js";
import { t } from "./strings.js";
import { clock, esc } from "./text.js";
import { MARK, measure } from "./text_measure.js";
import { isTold } from "./voice_choice.js";

const TOKENS = {
  "[laughter]": "laughter",
  "[breath]": "breath",
  "[sigh]": "sigh",
  "[cough]": "cough",
  "[mn]": "mn",
  "<strong></strong>": "strong",
  "<laughter></laughter>": "laughing"
};
const SYN = {
  "[laugh]": "[laughter]",
  "[laughs]": "[laughter]",
  "[sighs]": "[sigh]",
  "[breathe]": "[breath]"
};
const known = () => engine().tags || [],
  opens = v => v.match(/^<\w+>/)?.[0];
let linted = "",
  told = "",
  hinted = false;
/* How a character or word is said, written in its place: of engines that know such marks. What is
   in them is shown as it is typed. */
const READINGS = [
  ["reading.zh", "还", "[h][uán]"],
  ["reading.en", "read", "[R][EH1][D]"]
];
const reads = () =>
  READINGS.every(([, , v]) => v.match(/\[.+?\]/g).every(x => known().includes(x)));
const hint = () =>
  `<div class="kk kk-warns" id="kk-reading">` +
  READINGS.map(
    ([k, word, v]) =>
      `<p class="kk-sub">${esc(t(k))} <button type="button" class="kk-link" data-do="token"
        data-v="${v}" title="${esc(t("reading.put", { w: word, v }))}"
      >${word} → <bdi>${v}</bdi></button></p>`
  ).join("") +
  "</div>";
acts.reading = () => {
  hinted = !hinted;
  draw("under");
  live.under.root.querySelector("[data-do=reading]")?.focus();
};
parts.under = root => {
  const tags = Object.entries(TOKENS).filter(([v]) => known().includes(opens(v) || v));
  const chip = (
    what,
    v,
    title,
    words
  ) => `<button type="button" class="kk-chip kk-flat" data-do="${what}" data-v="${esc(v)}"
      title="${esc(title)}">${esc(words)}</button>`;
  root.innerHTML =
    `<div class="kk kk-under"><div class="kk-chips kk-scroll" role="group"
        aria-label="${esc(t(tags.length ? "tok.label" : "text.example"))}">` +
    tags.map(([v, k]) => chip("token", v, v, t("tok." + k))).join("") +
    (reads()
      ? `<button type="button" class="kk-chip kk-flat" data-do="reading" aria-expanded="${hinted}"
        aria-controls="kk-reading">${esc(t("tok.reading"))}</button>`
      : "") +
    [1, 2, 3].map(n => chip("example", "ex." + n, t("ex." + n), t("ex.n", { n }))).join("") +
    chip("words", "", t("pr.chip.t"), t("pr.chip")) +
    `<button type="button" class="kk-chip kk-flat"
      data-do="cleartext">${esc(t("text.clear"))}</button></div>
    <span class="kk-count kk-num"></span></div>${reads() && hinted ? hint() : ""}<div
      class="kk kk-warns kk-lint" role="status"></div>
    <div class="kk kk-notes" role="status"></div>`;
  linted = told = "";
  notes();
  when(() => field("kk-text"), recount);
};
acts.example = b => {
  setField("kk-text", t(b.dataset.v));
  field("kk-text")?.focus();
};
acts.cleartext = () => {
  setField("kk-text", "");
  field("kk-text")?.focus();
};
acts.token = b => {
  const el = field("kk-text"),
    v = b.dataset.v,
    a = el.selectionStart,
    z = el.selectionEnd,
    open = opens(v);
  const piece = open ? open + el.value.slice(a, z) + v.slice(open.length) : v,
    // inside the pair, so that the next words are in it
    at = a + (open ? open.length + (z - a) : piece.length);
  setField("kk-text", el.value.slice(0, a) + piece + el.value.slice(z));
  el.focus();
  el.setSelectionRange(at, at);
};
/* The studio says what it will speak of a text: asked once the typing rests, and an answer that
   was overtaken is dropped. Until one has come, and where none comes, the page's own guess
   stands. */
const REST_MS = 300;
let answer = {},
  asked = "",
  timer = 0,
  call = null;

function prepared(text) {
  const body = JSON.stringify({ text, language: remembered().language || "auto" }),
    key = (engine().engine || "") + body;
  if (key !== asked) {
    clearTimeout(timer);
    call?.abort();
    asked = key;
    timer = setTimeout(() => ask(key, body), REST_MS);
  }
  return answer.key === key ? answer.m : null;
}
async function ask(key, body) {
  call = new AbortController();
  try {
    const r = await fetch(studioUrl() + "/v1/text/prepare", {
        method: "POST",
        body,
        headers: { "Content-Type": "application/json" },
        signal: call.signal
      }),
      d = r.ok ? await r.json() : null;
    if (key !== asked || !d) return;
    answer = {
      key,
      text: JSON.parse(body).text,
      m: { c: d.characters, n: d.sentences, raw: d.seconds }
    };
    recount();
  } catch {
    /* overtaken, or no studio: the page's own guess stands */
  }
}

/* Seconds that a request will last: by the studio's answer, where that is of this text. */
export const expected = ({ input, voice, speed }) =>
  lasting(answer.text === input ? answer.m : measure(input), voice, speed).s;

export const recount = () => {
  const out = live.under?.root.querySelector(".kk-count");
  if (!out) return;
  const text = field("kk-text")?.value || "",
    over = [...text].length - facts.max_text,
    own = measure(text),
    m = lasting((over <= 0 && own.c && prepared(text)) || own);
  out.textContent =
    over > 0
      ? t("text.over", {
          n: over
        })
      : t(m.c ? "text.count" : "text.count.0", { ...m, s: clock(m.s) });
  out.toggleAttribute("data-over", over > 0);
  const bad = (text.match(MARK) || []).find(x => !known().includes(x) && !x.startsWith("<|")),
    better = bad && known().includes(SYN[bad]) ? SYN[bad] : "";
  const lines = [],
    cure = better ? t("text.tag.fix", { t: better }) : t("text.tag.drop");
  if (bad)
    lines.push(`<div class="kk-warn">${ico("warn")}<span>${esc(
      t("text.tag.bad", { t: bad })
    )}</span><button type="button"
        data-do="retag" data-v="${esc(bad)}" data-i="${esc(better)}">${esc(cure)}</button></div>`);
  if (m.c > 150 && over <= 0)
    lines.push(`<p class="kk-sub kk-longnote">${esc(t("text.long"))}</p>`);
  const html = lines.join(""),
    box = live.under.root.querySelector(".kk-lint");
  if (html !== linted || !box.firstChild) {
    box.innerHTML = linted = html;
  }
};
acts.retag = b => setField("kk-text", field("kk-text").value.replaceAll(b.dataset.v, b.dataset.i));
document.addEventListener("input", e => e.target.closest?.("#kk-speed") && recount());
["kk:text", "kk:lang", "kk:engine"].forEach(n => document.addEventListener(n, recount));

// ---- what the engine could not do of the last request: said calmly, stays until the next one or
let read = "";
function notes() {
  const box = live.under?.root.querySelector(".kk-notes"),
    list = player.notes || [];
  const key = list.length ? `${player.job} ${list.join("\n")}` : "";
  const html =
    !list.length || key === read
      ? ""
      : `<div class="kk-note2">${ico("bad", 16)}<div><b>${esc(t("notes.title"))}</b>${list
          .map(s => `<p>${esc(s)}</p>`)
          .join("")}</div>` +
        `<button type="button" class="kk-link" data-do="noted">${esc(
          t("notes.close")
        )}</button></div>`;
  if (!box || html === told) return;
  box.innerHTML = told = html;
}
acts.noted = () => {
  read = `${player.job} ${player.notes.join("\n")}`;
  notes();
  field("kk-text")?.focus();
};
document.addEventListener("kk:player", notes);

parts.modehint = root => {
  when(
    () => document.querySelector("#kk-mode input"),
    () => {
      root.innerHTML =
        `<h2 class="kk kk-vh">${esc(t("text.title"))}</h2><p
          class="kk kk-modehint">${esc(t(`mode.${mode()}.d`))}</p>` +
        (mode() === "zero_shot" && isTold() && field("kk-instruct")?.value.trim()
          ? `<p class="kk kk-modehint">${esc(t("mode.told"))}</p>`
          : "");
    }
  );
};
