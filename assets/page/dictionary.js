// @ts-check
/* The pronunciation dictionary of the settings tab: terms and how they are read. The studio keeps
   them (/v1/pronunciations); this draws them, asks for changes and says what came of it. */
import { acts } from "./acts.js";
import { toast } from "./engine_status.js";
import { studioUrl } from "./facts.js";
import { field, tab, when } from "./fields.js";
import { ico } from "./icons.js";
import { draw, live, parts } from "./parts.js";
import { store } from "./store.js";
import { lang, t } from "./strings.js";
import { esc } from "./text.js";

const LANGUAGES = ["zh", "en", "ja", "ko", "yue"];
const EMPTY = { term: "", reading: "", language: "" };
const ui = {
  list: null, // what the studio said last; null until it was asked
  limits: {},
  notice: null,
  form: { ...EMPTY }, // typed, not yet sent
  was: null, // the entry that is being changed
  ask: false, // whether all should go
  say: null, // { text, tone } : what came of the last press
  query: ""
};
const url = (tail = "") => `${studioUrl()}/v1/pronunciations${tail}`;
const same = (a, b) => a.term === b.term && a.language === b.language;
const tongue = l => (l ? (LANGUAGES.includes(l) ? t("lang." + l) : l) : t("pr.lang.all"));
const wordField = name => live.words?.root.querySelector(`[name=kk-word-${name}]`);

// ---- the studio's side ------------------------------------------------------------------------
/* The answer, or null after its sentence was shown beside the form. */
async function ask(method, tail = "", body = null, type = "application/json") {
  try {
    const r = await fetch(url(tail), {
      method,
      body,
      headers: { "Accept-Language": lang, ...(body ? { "Content-Type": type } : {}) }
    });
    if (r.ok) return r.status === 204 ? {} : await r.json();
    const told = (await r.json().catch(() => null))?.error;
    say(told?.message || t("err.net"), "bad");
    wordField(told?.param)?.focus();
  } catch {
    say(t("err.net"), "bad");
  }
  return null;
}
let asked = 0,
  newest = null;
/* Settles when the newest question that was asked meanwhile is answered and drawn. */
const load = () => (newest = look());
async function look() {
  const mine = ++asked,
    told = await ask("GET");
  if (mine !== asked) return newest; // this answer may be the older of the two
  if (!told) return;
  ui.list = told.data;
  ui.limits = told.limits;
  ui.notice = told.notice;
  list();
}
async function put(entry, was = null) {
  const made = await ask("PUT", "", JSON.stringify({ ...entry, ...(was ? { was } : {}) }));
  if (made) await load();
  return made;
}
const at = e => `?term=${encodeURIComponent(e.term)}&language=${encodeURIComponent(e.language)}`;

// ---- drawing ----------------------------------------------------------------------------------
function say(text, tone = "ok") {
  ui.say = text ? { text, tone } : null;
  const el = live.words?.root.querySelector(".kk-wordsay");
  if (!el) return;
  el.textContent = text;
  el.dataset.tone = tone;
}
const input = (
  name,
  max
) => `<label><span>${esc(t("pr." + name))}</span><input type="text" id="kk-word-${name}"
  name="kk-word-${name}"
    data-word="${name}" maxlength="${max}" autocomplete="off" spellcheck="false"
      value="${esc(ui.form[name])}"
    placeholder="${esc(t(`pr.${name}.eg`))}"></label>`;
const option = l =>
  `<option value="${l}"${ui.form.language === l ? " selected" : ""}>${esc(tongue(l))}</option>`;
const press = (what, key, cls = "kk-b2", icon = "") =>
  `<button type="button" class="${cls}" data-do="${what}">${icon && ico(icon, 16)}${esc(
    t(key)
  )}</button>`;

parts.words = root => {
  const other = ui.form.language && !LANGUAGES.includes(ui.form.language) ? [ui.form.language] : [];
  root.innerHTML = `<div class="kk kk-words"><div class="kk-cardhead"><h2
    class="kk-h2">${esc(t("pr.title"))}</h2><p
      class="kk-sub">${esc(t("pr.sub"))}</p></div><div class="kk-warns kk-wordnotice"></div>
    <form id="kk-wordform" class="kk-wordform" aria-label="${esc(t("pr.title"))}">${input(
      "term",
      64
    )}${input("reading", 160)}
      <label><span>${esc(t("pr.lang"))}</span><select id="kk-word-language"
        name="kk-word-language"
        data-word="language">${["", ...LANGUAGES, ...other].map(option).join("")}</select></label>
      <div class="kk-row"><button type="submit" class="kk-b2">${esc(
        t(ui.was ? "pr.change" : "pr.add")
      )}</button>${ui.was ? press("wordleave", "pr.cancel") : ""}</div></form>
    <p class="kk-inline kk-wordsay" role="status"
      data-tone="${ui.say?.tone || ""}">${esc(ui.say?.text || "")}</p>
    <div class="kk-wordlist"></div></div>`;
  list();
  watch(root);
};
const matches = e =>
  !ui.query || `${e.term}\n${e.reading}`.toLowerCase().includes(ui.query.toLowerCase());
const row = e => {
  const i = ui.list.indexOf(e),
    name = esc(`${e.term} ${e.language && tongue(e.language)}`.trim());
  const button = (
    what,
    key,
    icon
  ) => `<button type="button" class="kk-iconb" data-do="${what}" data-i="${i}"
      aria-label="${esc(t(key))} ${name}">${ico(icon)}</button>`;
  return `<li class="kk-word"><bdi class="kk-wordterm">${esc(e.term)}</bdi><span
    aria-hidden="true">→</span><bdi>${esc(e.reading)}</bdi>
    <span class="kk-tag">${esc(tongue(e.language))}</span><span
      class="kk-wordacts">${button("wordedit", "pr.edit", "pen")}${button(
        "worddrop",
        "pr.del",
        "bin"
      )}</span></li>`;
};
// the box of the list: what is in it, so that a look that brings nothing new touches nothing, the
// focus neither
const drawn = new WeakMap();
/* Everything below the form; the form itself stays, with what is typed in it. */
function list() {
  const root = live.words?.root,
    box = root?.querySelector(".kk-wordlist");
  if (!box) return;
  const all = ui.list || [],
    found = all.filter(matches),
    n = ui.notice;
  root.querySelector(".kk-wordnotice").innerHTML =
    n && store.get("words.notice") !== n.file
      ? `<div class="kk-warn">${ico("warn")}<span>${esc(
          lang === "zh" ? n.message_zh : n.message
        )}</span>${press("wordnoted", "notes.close", "")}</div>`
      : "";
  const search =
    all.length > 8 || ui.query
      ? `<label class="kk-search">${ico("search", 16)}<input type="search" id="kk-word-search"
      data-word="query" value="${esc(ui.query)}" placeholder="${esc(t("pr.search"))}"
        aria-label="${esc(t("pr.search"))}"></label>`
      : "";
  const none =
    ui.list === null
      ? ""
      : `<p class="kk-empty">${esc(ui.query ? t("vo.none", { q: ui.query }) : t("pr.empty"))}</p>`;
  const save = kind =>
    `<a class="kk-link" href="${esc(url("." + kind))}"
      download="pronunciations.${kind}">${ico("down", 15)}${kind.toUpperCase()}</a>`;
  const foot = [
    `<span class="kk-sub kk-num">${esc(
      t("pr.count", { n: all.length, m: ui.limits.terms ?? "" })
    )}</span>`,
    press("wordimport", "pr.import", "kk-link", "up"),
    ...(all.length
      ? [save("tsv"), save("csv"), press("wordall", "pr.clear", "kk-link", "bin")]
      : [])
  ];
  const html =
    search +
    (found.length
      ? `<ul class="kk-wordrows" aria-label="${esc(t("pr.title"))}">${found.map(row).join("")}</ul>`
      : none) +
    (ui.ask
      ? `<div class="kk-toolbar"><p class="kk-ask"
        role="alert">${esc(t("pr.clear.ask", { n: all.length }))}</p>${press(
          "wordclear",
          "pr.clear.yes",
          "kk-b2 kk-danger"
        )}${press("wordkeep", "vo.keep")}</div>`
      : `<div class="kk-row kk-wordfoot">${foot.join("")}</div>`);
  if (drawn.get(box) === html) return;
  drawn.set(box, html);
  box.innerHTML = html;
}
const focus = q => live.words.root.querySelector(q)?.focus();

// it is asked for whenever it comes into view, so that it is never older than the look at it
let seen = null,
  of = null;
function watch(root) {
  if (of === root) return;
  seen?.disconnect();
  of = root;
  seen = new IntersectionObserver(list => list.some(e => e.isIntersecting) && load());
  seen.observe(root);
}

// ---- acts -------------------------------------------------------------------------------------
function edit(form, was) {
  ui.form = { ...form };
  ui.was = was;
  draw("words");
}
acts.wordedit = b => {
  const e = ui.list[b.dataset.i];
  say("");
  edit(e, e);
  wordField("reading")?.focus();
};
acts.wordleave = () => {
  say("");
  edit(EMPTY, null);
  wordField("term")?.focus();
};
async function send() {
  const was = ui.was && { term: ui.was.term, language: ui.was.language },
    sent = { ...ui.form },
    made = await put(sent, was);
  if (!made) return;
  // the next one already: it stays
  const typing = JSON.stringify(ui.form) !== JSON.stringify(sent);
  if (was || !typing) edit(typing ? ui.form : EMPTY, null);
  say(t("pr.saved", { a: made.term, b: made.reading }));
  if (!typing) wordField("term")?.focus();
}
acts.worddrop = async b => {
  const e = ui.list[b.dataset.i];
  if (!(await ask("DELETE", at(e)))) return;
  await load();
  if (ui.was && same(ui.was, e)) edit(EMPTY, null);
  say("");
  toast(t("pr.deleted", { a: e.term }), t("sys.undo"), () => put(e), 8000);
  focus(`[data-do=worddrop][data-i="${Math.min(+b.dataset.i, ui.list.length - 1)}"]`);
  if (!ui.list.length) wordField("term")?.focus();
};
acts.wordall = () => {
  ui.ask = true;
  list();
  focus("[data-do=wordkeep]");
};
acts.wordkeep = () => {
  ui.ask = false;
  list();
  focus("[data-do=wordall]");
};
acts.wordclear = async () => {
  const n = ui.list.length,
    file = await fetch(url(".tsv")).then(
      r => (r.ok ? r.blob() : null),
      () => null
    );
  ui.ask = false;
  if (!file) say(t("err.net"), "bad");
  if (!file || !(await ask("DELETE", "?all=true"))) return list();
  await load();
  toast(
    t("pr.cleared", { n }),
    t("sys.undo"),
    async () => {
      // the studio takes back exactly what it gave
      if (await ask("POST", ".tsv", file, "text/tab-separated-values")) load();
    },
    8000
  );
  wordField("term")?.focus();
};
acts.wordnoted = () => {
  store.set("words.notice", ui.notice.file);
  list();
  wordField("term")?.focus();
};
acts.wordimport = () => {
  const pick = Object.assign(document.createElement("input"), {
    type: "file",
    accept: ".tsv,.csv,.txt"
  });
  pick.addEventListener("change", () => pick.files[0] && bring(pick.files[0]));
  pick.click();
};
async function bring(file) {
  if (file.size > (ui.limits.file ?? Infinity)) return say(t("pr.large"), "bad");
  const csv = /\.csv$/i.test(file.name),
    made = await ask(
      "POST",
      csv ? ".csv" : ".tsv",
      file,
      csv ? "text/csv" : "text/tab-separated-values"
    );
  if (!made) return;
  await load();
  say(t("pr.imported", { a: made.added, c: made.changed }));
}
/* From the text: what is marked there becomes the term. */
acts.words = () => {
  const el = field("kk-text"),
    marked = el ? el.value.slice(el.selectionStart, el.selectionEnd).trim().slice(0, 64) : "";
  tab("settings");
  when(
    () => live.words?.root.offsetParent && wordField("term"),
    () => {
      if (marked) edit({ ...EMPTY, term: marked }, null);
      const to = wordField(marked ? "reading" : "term");
      to.scrollIntoView({ block: "center" });
      to.focus();
    }
  );
};

const typed = e => {
  const what = e.target.dataset?.word;
  if (!what) return;
  if (what !== "query") {
    ui.form[what] = e.target.value;
    return;
  }
  const place = e.target.selectionStart;
  ui.query = e.target.value;
  list();
  focus("#kk-word-search");
  live.words.root.querySelector("#kk-word-search")?.setSelectionRange(place, place);
};
document.addEventListener("input", typed);
document.addEventListener("submit", e => {
  if (e.target.id !== "kk-wordform") return;
  e.preventDefault();
  send();
});
window.addEventListener(
  "keydown",
  e => {
    // before the page's own Escape, which would stop a stream
    if (e.key !== "Escape" || !ui.was || !e.target.closest?.("#kk-wordform")) return;
    e.stopPropagation();
    acts.wordleave();
  },
  true
);
