// @ts-check
/* The tab Batch, right: the jobs of this account, how far they are, and their lines. Asks the
   studio (/v2/jobs) while somebody looks. */
import { acts } from "./acts.js";
import { addressOf, drawTitle, places, setAddress } from "./address.js";
import { playLine, sounding } from "./audio_preview.js";
import { studioUrl } from "./facts.js";
import { ico } from "./icons.js";
import { live, parts } from "./parts.js";
import { formatMenu, isForever } from "./storage.js";
import { t } from "./strings.js";
import { askStudio } from "./studio_api.js";
import { clock, esc } from "./text.js";

const PAGE = 50,
  MOVING_MS = 1200,
  STILL_MS = 15000;
const ui = {
  jobs: null,
  open: "",
  start: 1,
  failed: false,
  lines: [],
  next: null,
  ask: "",
  say: "",
  is_new: false
};
const url = tail => `${studioUrl()}/v2/jobs${tail}`;
const at = (id, tail = "") => `/${encodeURIComponent(id)}${tail}`;

const ask = (method, tail) => askStudio(method, "/v2/jobs" + tail);

// ---- asked for while somebody looks -----------------------------------------------------------
let timer = 0,
  isSeen = false,
  asked = 0,
  newest = null;
/* Settles when the newest question that was asked meanwhile is answered and drawn. */
const load = () => (newest = look());
async function look() {
  clearTimeout(timer);
  if (!isSeen || document.hidden) return;
  const mine = ++asked,
    told = await ask("GET", "?limit=30");
  if (mine !== asked) return newest; // this answer may be the older of the two
  if (!told.error) {
    ui.jobs = told.data;
    ui.days = told.limits.keep_days;
    if (ui.open && !ui.jobs.some(j => j.id === ui.open)) await older();
    if (ui.open) await lines();
  }
  ui.say = told.error || ui.say;
  update();
  clearTimeout(timer);
  timer = setTimeout(load, ui.jobs?.some(j => j.state === "running") ? MOVING_MS : STILL_MS);
}
/* The job that is open is none of the newest: it stands below them, or it is gone, and the studio
   says so. */
async function older() {
  const id = ui.open,
    told = /^[\w-]+$/.test(id) ? await ask("GET", at(id)) : { error: t("ad.job") };
  if (id !== ui.open) return;
  if (told.error) Object.assign(ui, { open: "", say: told.error });
  else ui.jobs.push(told);
}
let turned = 0;
async function lines() {
  const mine = ++turned,
    told = await ask(
      "GET",
      at(ui.open, `/lines?start=${ui.start}&count=${PAGE}${ui.failed ? "&state=failed" : ""}`)
    );
  if (told.error || mine !== turned) return; // of another page or another job
  ui.lines = told.data;
  ui.next = told.next;
}
document.addEventListener("visibilitychange", () => !document.hidden && load());
let seen = null,
  of = null;
function watch(root) {
  if (of === root) return;
  seen?.disconnect();
  of = root;
  seen = new IntersectionObserver(list => {
    isSeen = list.at(-1).isIntersecting;
    if (isSeen) load();
  });
  seen.observe(root);
}

// ---- drawing ----------------------------------------------------------------------------------
// what was drawn of each job, so that a look that brings nothing new touches nothing
const shown = new Map();
parts.jobs = root => {
  shown.clear();
  root.innerHTML = `<section class="kk kk-jobs" aria-labelledby="kk-jobs-h"><div
    class="kk-secthead"><h2 class="kk-h2" id="kk-jobs-h">${esc(t("ba.jobs"))}</h2>${formatMenu(
      "jobs"
    )}</div>
    <p class="kk-sub kk-num kk-storage" id="kk-jobkeep"></p><p class="kk-inline" data-tone="bad"
      id="kk-jobsay" role="status" tabindex="-1"></p><ol class="kk-joblist"
        aria-label="${esc(t("ba.jobs"))}"></ol></section>`;
  update();
  watch(root);
};
function update() {
  const root = live.jobs?.root,
    list = root?.querySelector(".kk-joblist");
  if (!list || ui.jobs === null) return;
  root.querySelector("#kk-jobsay").textContent = ui.say;
  root.querySelector("#kk-jobkeep").textContent = isForever(ui.days)
    ? t("ba.keep.forever")
    : t("ba.keep", { n: ui.days });
  const ids = ui.jobs.map(j => j.id);
  if (!ids.length) {
    list.innerHTML = `<li class="kk-empty">${esc(t("ba.jobs.none"))}</li>`;
    shown.clear();
    return arrive();
  }
  for (const li of [...list.children])
    if (!ids.includes(li.dataset.job)) {
      shown.delete(li.dataset.job);
      li.remove();
    }
  ui.jobs.forEach((j, i) => {
    let li = list.querySelector(`[data-job="${CSS.escape(j.id)}"]`);
    if (!li) li = Object.assign(document.createElement("li"), { className: "kk-job" });
    li.dataset.job = j.id;
    if (list.children[i] !== li) list.insertBefore(li, list.children[i] || null);
    const html = card(j);
    if (shown.get(j.id) === html) return;
    shown.set(j.id, html);
    redraw(li, html);
  });
  arrive();
  drawTitle();
}
/* Whoever came by an address is led to its job, or to the sentence that says that there is none.
 */
function arrive() {
  const el =
    ui.is_new &&
    live.jobs.root.querySelector(
      ui.open ? `[data-job="${CSS.escape(ui.open)}"] [data-do=joblines]` : "#kk-jobsay:not(:empty)"
    );
  if (!el) return;
  ui.is_new = false;
  el.scrollIntoView({ block: "center" });
  el.focus({ preventScroll: true });
}
places.batch = {
  show(id) {
    if (id === ui.open && !ui.say) return;
    Object.assign(ui, {
      open: id,
      start: 1,
      failed: false,
      lines: [],
      next: null,
      say: "",
      is_new: !!id
    });
    update();
    load();
  },
  now: () => ui.open,
  name: id => ui.jobs?.find(j => j.id === id)?.name || ""
};
function redraw(li, html) {
  const el = document.activeElement,
    held =
      li.contains(el) && el.dataset.do
        ? `[data-do="${el.dataset.do}"]${el.dataset.n ? `[data-n="${el.dataset.n}"]` : ""}`
        : "";
  const scroll = li.querySelector(".kk-jobrows")?.scrollTop || 0;
  li.innerHTML = html;
  if (held)
    (li.querySelector(held) || li.querySelector("button, a"))?.focus({ preventScroll: true });
  const rows = li.querySelector(".kk-jobrows");
  if (rows) rows.scrollTop = scroll;
}
const press = (what, key, j, cls = "kk-b2", icon = "") =>
  `<button type="button" class="${cls}" data-do="${what}" data-id="${esc(j.id)}"
    aria-label="${esc(t(key) + " " + j.name)}">${icon && ico(icon, 16)}${esc(t(key))}</button>`;
const state = s => t("ba.s." + s);

function card(j) {
  const part = j.total ? Math.round((100 * (j.done + j.failed)) / j.total) : 0,
    isOpen = ui.open === j.id;
  const facts = [
    state(j.state),
    t("ba.prog", { d: j.done, t: j.total }),
    j.failed ? t("ba.fail", { n: j.failed }) : "",
    j.state === "running" && j.eta_s != null ? t("ba.eta", { s: clock(Math.ceil(j.eta_s)) }) : "",
    t("takes.seed", { n: j.seed })
  ].filter(Boolean);
  const buttons = [
    `<button type="button" class="kk-b2" data-do="joblines" data-id="${esc(j.id)}"
      aria-expanded="${isOpen}" aria-label="${esc(
        t(isOpen ? "ba.hide" : "ba.lines") + " " + j.name
      )}">${esc(t(isOpen ? "ba.hide" : "ba.lines"))}</button>`,
    j.state === "running" ? press("jobpause", "ba.pause", j) : "",
    ["paused", "cancelled"].includes(j.state) ? press("jobresume", "ba.resume", j) : "",
    j.failed ? press("jobretry", "ba.retry", j) : "",
    j.done
      ? `<a class="kk-b2" href="${esc(url(at(j.id, "/download")))}" download data-do="savezip"
        aria-label="${esc(t("ba.zip") + " " + j.name)}">${ico("down", 16)}${esc(t("ba.zip"))}</a>`
      : "",
    j.done + j.failed
      ? `<a class="kk-b2" href="${esc(url(at(j.id, "/lines.csv")))}" download data-do="savetable"
        aria-label="${esc(t("ba.csv") + " " + j.name)}">${esc(t("ba.csv"))}</a>`
      : "",
    `<button type="button" class="kk-iconb" data-do="jobask" data-id="${esc(j.id)}"
      aria-label="${esc(t("ba.del") + " " + j.name)}">${ico("bin")}</button>`
  ].join("");
  const sure =
    ui.ask === j.id
      ? `<div class="kk-toolbar"><p class="kk-ask"
        role="alert">${esc(t(j.state === "running" ? "ba.del.ask.open" : "ba.del.ask"))}</p>${press(
          "jobdrop",
          "ba.del",
          j,
          "kk-b2 kk-danger"
        )}${press("jobkeep", "vo.keep", j)}</div>`
      : "";
  return (
    `<h3><a href="${esc(addressOf("batch", j.id))}">${esc(j.name || j.id)}</a></h3><div
      class="kk-meter2" role="progressbar" aria-label="${esc(j.name || j.id)}" aria-valuemin="0"
        aria-valuemax="100" aria-valuenow="${part}"
      data-state="${j.state}"><span style="width:${part}%"></span></div><p
        class="kk-meta kk-num">${facts.map(f => `<span>${esc(f)}</span>`).join("")}</p>` +
    (j.error
      ? `<p class="kk-inline" data-tone="bad" role="status">${esc(j.error.message)}</p>`
      : "") +
    `<div class="kk-row kk-jobacts">${buttons}</div>${sure}${isOpen ? rows(j) : ""}`
  );
}
function rows(j) {
  const last = ui.lines.at(-1)?.line,
    first = ui.lines[0]?.line,
    id = `data-id="${esc(j.id)}"`;
  const turn = [
    j.failed || ui.failed
      ? `<label class="kk-switch"><input type="checkbox" data-do="jobfailed"
        ${id}${ui.failed ? " checked" : ""}>${esc(t("ba.only"))}</label>`
      : "",
    ui.start > 1
      ? `<button type="button" class="kk-link" data-do="jobprev"
        ${id}>${esc(t("ba.prev"))}</button>`
      : "",
    first ? `<span class="kk-sub kk-num">${esc(t("ba.page", { a: first, b: last }))}</span>` : "",
    ui.next
      ? `<button type="button" class="kk-link" data-do="jobnext"
        ${id}>${esc(t("ba.next"))}</button>`
      : ""
  ].join("");
  const row = l => `<li class="kk-jobrow" data-state="${l.state}"><span
      class="kk-num">${l.line}</span><bdi>${esc(l.text)}</bdi><span class="kk-sub kk-num">${esc(
        l.state === "done" ? clock(l.seconds) : state(l.state === "cancelled" ? "waiting" : l.state)
      )}</span><span class="kk-jobdo">${
        l.state === "done"
          ? `<button type="button" class="kk-iconb" data-do="playline"
      data-id="${esc(j.id)}/${l.line}" data-n="${l.line}"
        aria-label="${esc(t("ba.play", { n: l.line }))}">${ico(
          sounding(`${j.id}/${l.line}`, "line") ? "pause" : "play",
          18
        )}</button>`
          : l.state === "failed"
            ? `<button type="button" class="kk-iconb" data-do="lineretry" ${id} data-n="${l.line}"
            aria-label="${esc(t("ba.retry1", { n: l.line }))}">${ico("again")}</button>`
            : ""
      }</span>
    ${
      l.state === "done" && l.notes.length
        ? `<p class="kk-sub kk-linenote">${esc(l.notes.join(" "))}</p>`
        : ""
    }${
      l.error && l.state === "failed"
        ? `<p class="kk-inline"
        data-tone="bad">${esc(l.error.message)}</p>`
        : ""
    }</li>`;
  return `<div class="kk-joblines"><div class="kk-row">${turn}</div><ol class="kk-jobrows"
    tabindex="0" aria-label="${esc(t("ba.lines") + " " + j.name)}">${ui.lines
      .map(row)
      .join("")}</ol></div>`;
}

// ---- acts -------------------------------------------------------------------------------------
async function act(method, tail) {
  const told = await ask(method, tail);
  ui.say = told.error || "";
  await load();
  return told;
}
const focus = (what, id) =>
  live.jobs.root.querySelector(`[data-do=${what}][data-id="${CSS.escape(id)}"]`)?.focus();
export const showJob = async id => {
  isSeen = true;
  await load();
  live.jobs.root.querySelector(`[data-job="${CSS.escape(id)}"] [data-do=joblines]`)?.focus();
};
acts.jobpause = b => act("POST", at(b.dataset.id, "/cancel"));
acts.jobresume = b => act("POST", at(b.dataset.id, "/resume"));
acts.jobretry = b => act("POST", at(b.dataset.id, "/retry"));
acts.lineretry = b => act("POST", at(b.dataset.id, `/retry?line=${b.dataset.n}`));
acts.joblines = async b => {
  Object.assign(ui, {
    open: ui.open === b.dataset.id ? "" : b.dataset.id,
    start: 1,
    failed: false,
    lines: [],
    next: null
  });
  setAddress("batch", ui.open);
  if (ui.open) await lines();
  update();
};
async function turn(start) {
  ui.start = Math.max(1, start);
  await lines();
  update();
}
acts.jobnext = () => turn(ui.next);
acts.jobprev = () => turn(ui.failed ? 1 : ui.start - PAGE);
acts.jobfailed = () => {
  ui.failed = !ui.failed;
  turn(1);
};
acts.jobask = b => {
  ui.ask = b.dataset.id;
  update();
  focus("jobkeep", b.dataset.id);
};
acts.jobkeep = b => {
  ui.ask = "";
  update();
  focus("jobask", b.dataset.id);
};
acts.jobdrop = async b => {
  ui.ask = "";
  if (ui.open === b.dataset.id) {
    ui.open = "";
    setAddress("batch", "", true);
  }
  await act("DELETE", at(b.dataset.id));
  (
    live.jobs.root.querySelector("[data-do=joblines]") || document.getElementById("kk-batchtext")
  )?.focus();
};
acts.playline = b => {
  const [id, n] = b.dataset.id.split("/");
  playLine(b.dataset.id, url(at(id, `/lines/${n}.wav`)));
};
