// @ts-check
/* API keys and demo links of the settings tab: what there is, what it used, and the way to take it
   back. The studio keeps both (/v1/keys, /v1/demos); a key is shown here once, when it was made.
   Also what both and the share form have in common: `access`. */
import { acts } from "./acts.js";
import { toast } from "./engine_status.js";
import { draw, live, parts } from "./parts.js";
import { lang, t } from "./strings.js";
import { askStudio } from "./studio_api.js";
import { clock, esc } from "./text.js";
import { voiceName, voices } from "./voice_choice.js";

const SCOPES = ["speak", "voices", "jobs", "admin"];
const ui = {
  keys: null, // what the studio said last; null until it was asked
  demos: null,
  open: true, // nobody is asked for a key yet
  form: { name: "", per_minute: "600", scopes: ["speak"] },
  made: null, // { name, key } : shown once
  ask: "", // the key or link whose end is asked about
  say: null // { part, text, tone }
};

// ---- the studio's side ------------------------------------------------------------------------
/* The answer, or null after `fail(sentence, field)`. */
async function ask(method, path, body, fail) {
  const told = await askStudio(method, path, body);
  if (!told.error) return told;
  fail(told.error, told.param);
  return null;
}
const refuse = part => (text, field) => {
  say(part, text, "bad");
  live[part]?.root.querySelector(`[name=kk-${part}-${field}]`)?.focus();
};
const asked = { keys: 0, demos: 0 };
async function load(part) {
  const mine = ++asked[part],
    told = await ask("GET", `/v1/${part}`, null, refuse(part));
  if (told && mine === asked[part]) {
    // else somebody asked again meanwhile: this answer may be the older of the two
    ui[part] = told.data;
    if (part === "keys") ui.open = !told.are_on;
  }
  draw(part);
}

// ---- drawing ----------------------------------------------------------------------------------
function say(part, text, tone = "ok") {
  ui.say = text ? { part, text, tone } : null;
  const el = live[part]?.root.querySelector(".kk-accsay");
  if (!el) return;
  el.textContent = text;
  el.dataset.tone = text ? tone : "";
}
const said = part => (ui.say?.part === part ? ui.say : { text: "", tone: "" });
const status = part =>
  `<p class="kk-inline kk-accsay" role="status" data-tone="${said(part).tone}">${esc(
    said(part).text
  )}</p>`;
const press = (what, key, id, cls = "kk-b2", name = "") =>
  `<button type="button" class="${cls}" data-do="${what}" data-id="${esc(id)}"${
    name ? ` aria-label="${esc(t(key) + " " + name)}"` : ""
  }>${esc(t(key))}</button>`;
const day = s =>
  new Date(s * 1000).toLocaleDateString(lang === "zh" ? "zh-CN" : "en", {
    year: "numeric",
    month: "short",
    day: "numeric"
  });
const used = u =>
  [
    t("ak.used", { n: u.requests, c: u.characters, s: clock(u.audio_s) }),
    u.last_used_at ? t("ak.last", { d: day(u.last_used_at) }) : t("ak.never")
  ].join(" · ");
const empty = (part, key) => (ui[part] === null ? "" : `<p class="kk-empty">${esc(t(key))}</p>`);
/* A line to be copied: shown, selected by a press, copied by the button beside it. */
const copyable = (
  id,
  label,
  value
) => `<label class="kk-copy"><span>${esc(label)}</span><span class="kk-row"><input type="text"
  readonly id="${id}"
    value="${esc(value)}" data-pick><button type="button" class="kk-b2" data-do="copyline"
      data-id="${id}"
    aria-label="${esc(t("ak.copy") + " " + label)}">${esc(t("ak.copy"))}</button></span></label>`;

parts.keys = root => {
  const box = s =>
    `<label class="kk-scope"><input type="checkbox" id="kk-scope-${s}"
      data-scope="${s}"${ui.form.scopes.includes(s) ? " checked" : ""}><span>${esc(
        t("ak.scope." + s)
      )}</span></label>`;
  const list = ui.keys || [];
  root.innerHTML = `<div class="kk kk-words"><div class="kk-cardhead"><h2
    class="kk-h2">${esc(t("ak.title"))}</h2><p
      class="kk-sub">${esc(t(ui.open && ui.keys ? "ak.open" : "ak.sub"))}</p></div>
    <form id="kk-keyform" class="kk-keyform"
      aria-label="${esc(t("ak.title"))}"><label><span>${esc(t("ak.name"))}</span><input type="text"
        id="kk-keyname" name="kk-keys-name" data-key="name" maxlength="60" autocomplete="off"
          value="${esc(ui.form.name)}" placeholder="${esc(t("ak.name.eg"))}"></label>
      <label><span>${esc(t("ak.rate"))}</span><input type="number" id="kk-keyrate"
        name="kk-keys-per_minute" data-key="per_minute" min="1" max="100000"
        value="${esc(ui.form.per_minute)}"></label><fieldset
          class="kk-scopes"><legend>${esc(t("ak.scopes"))}</legend>${SCOPES.map(box).join(
            ""
          )}</fieldset>
      <div class="kk-row"><button type="submit" class="kk-b2">${esc(
        t("ak.make")
      )}</button></div></form>${status("keys")}
    ${
      ui.made
        ? `<div class="kk-made" role="group" aria-label="${esc(ui.made.name)}">${copyable(
            "kk-madekey",
            t("ak.once", { n: ui.made.name }),
            ui.made.key
          )}${press("keyseen", "ak.seen", "")}</div>`
        : ""
    }
    ${
      list.length
        ? `<ul class="kk-wordrows" aria-label="${esc(t("ak.title"))}">${list
            .map(keyRow)
            .join("")}</ul>`
        : empty("keys", "ak.none")
    }</div>`;
  watch("keys", root);
};
function keyRow(k) {
  const tags = k.scopes.map(s => `<span class="kk-tag">${esc(t("ak.tag." + s))}</span>`).join("");
  const end = k.revoked_at
    ? `<span class="kk-tag" data-tone="bad">${esc(t("ak.revoked"))}</span>`
    : ui.ask === k.id
      ? `<p class="kk-ask" role="alert">${esc(t("ak.revoke.ask", { n: k.name }))}</p>${press(
          "keydrop",
          "ak.revoke",
          k.id,
          "kk-b2 kk-danger"
        )}${press("accesskeep", "vo.keep", k.id)}`
      : press("keyask", "ak.revoke", k.id, "kk-link", k.name);
  return `<li class="kk-word kk-accrow"><bdi class="kk-wordterm">${esc(k.name)}</bdi>${tags}<span
    class="kk-wordacts">${end}</span>
    <small class="kk-sub kk-num"><code>${esc(k.id)}</code> · ${esc(
      t("ak.permin", { n: k.per_minute })
    )} · ${esc(used(k.usage))}</small></li>`;
}

parts.demos = root => {
  const list = ui.demos || [];
  root.innerHTML = `<div class="kk kk-words"><div class="kk-cardhead"><h2
    class="kk-h2">${esc(t("dm.title"))}</h2><p class="kk-sub">${esc(t("dm.sub"))}</p></div>
    ${status("demos")}${
      list.length
        ? `<ul class="kk-wordrows"
      aria-label="${esc(t("dm.title"))}">${list.map(demoRow).join("")}</ul>`
        : empty("demos", "dm.none")
    }</div>`;
  watch("demos", root);
};
function demoRow(d) {
  const live = d.state === "live",
    voice = voices().find(v => v.id === d.voice);
  const end =
    d.state === "revoked"
      ? ""
      : ui.ask === d.id
        ? `<p class="kk-ask" role="alert">${esc(t("dm.revoke.ask", { n: d.title }))}</p>${press(
            "demodrop",
            "dm.revoke",
            d.id,
            "kk-b2 kk-danger"
          )}${press("accesskeep", "vo.keep", d.id)}`
        : `${
            live
              ? `<a class="kk-link" href="${esc(d.url)}" target="_blank" rel="noopener"
          aria-label="${esc(t("dm.show") + " " + d.title)}">${esc(t("dm.show"))}</a>`
              : ""
          }${press("demoask", "dm.revoke", d.id, "kk-link", d.title)}`;
  const facts = [
    voice ? voiceName(voice) : t("dm.gone"),
    t("dm.uses", { n: d.uses, m: d.max_uses }),
    t("dm.chars", { n: d.characters, m: d.max_chars }),
    t("dm.until", { d: day(d.expires_at) }),
    t("ak.sound", { s: clock(d.usage.audio_s) })
  ];
  return `<li class="kk-word kk-accrow"><bdi class="kk-wordterm">${esc(d.title)}</bdi><span
    class="kk-tag"${live ? "" : ' data-tone="bad"'}>${esc(t("dm.state." + d.state))}</span>
    <span class="kk-wordacts">${end}</span><small
      class="kk-sub kk-num">${esc(facts.join(" · "))}</small></li>`;
}
// both are asked for whenever they come into view, so that what they say is never older than the
// look at it
const seen = {};
function watch(part, root) {
  if (seen[part]?.root === root) return;
  seen[part]?.eye.disconnect();
  const eye = new IntersectionObserver(list => list.some(e => e.isIntersecting) && load(part));
  seen[part] = { root, eye };
  eye.observe(root);
}
const focus = (part, q) => live[part].root.querySelector(q)?.focus();

// ---- acts -------------------------------------------------------------------------------------
async function make() {
  const { name, per_minute, scopes } = ui.form;
  const made = await ask(
    "POST",
    "/v1/keys",
    { name, scopes, per_minute: Math.round(Number(per_minute)) || 0 },
    refuse("keys")
  );
  if (!made) return;
  ui.made = { name: made.name, key: made.key };
  ui.form.name = "";
  ui.say = null;
  await load("keys");
  focus("keys", "#kk-madekey");
}
acts.keyseen = () => {
  ui.made = null;
  draw("keys");
  focus("keys", "[name=kk-keys-name]");
};
const askFor = (part, b) => {
  ui.ask = b.dataset.id;
  draw(part);
  focus(part, "[data-do=accesskeep]");
};
acts.keyask = b => askFor("keys", b);
acts.demoask = b => askFor("demos", b);
acts.accesskeep = b => {
  const part = b.closest("#kk-apikeys") ? "keys" : "demos",
    id = CSS.escape(b.dataset.id);
  ui.ask = "";
  draw(part);
  focus(part, `[data-do=${part === "keys" ? "keyask" : "demoask"}][data-id="${id}"]`);
};
const end = async (part, b, sentence) => {
  ui.ask = "";
  if (await ask("DELETE", `/v1/${part}/${encodeURIComponent(b.dataset.id)}`, null, refuse(part)))
    ui.say = { part, text: sentence, tone: "ok" };
  await load(part);
  live[part].root.querySelector(".kk-accsay")?.scrollIntoView({ block: "nearest" });
};
acts.keydrop = b => end("keys", b, t("ak.revoke.done"));
acts.demodrop = b => end("demos", b, t("dm.revoke.done"));
acts.copyline = async b => {
  const el = document.getElementById(b.dataset.id);
  el.select();
  try {
    await navigator.clipboard.writeText(el.value);
  } catch {
    document.execCommand("copy"); // no clipboard where the page is not served safely
  }
  toast(t("ak.copied"));
};
document.addEventListener("focusin", e => e.target.matches?.("[data-pick]") && e.target.select());
document.addEventListener("input", e => {
  const { key, scope } = e.target.dataset || {};
  if (key && e.target.closest("#kk-keyform")) ui.form[key] = e.target.value;
  if (scope)
    ui.form.scopes = SCOPES.filter(s => live.keys.root.querySelector(`[data-scope=${s}]`)?.checked);
});
document.addEventListener("submit", e => {
  if (e.target.id !== "kk-keyform") return;
  e.preventDefault();
  make();
});
export const access = { ask, copyable, load };
