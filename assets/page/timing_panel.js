// @ts-check
/* A press on the player's figures opens a panel: each figure with its meaning, and where the time
   of this stream went, stage by stage. Reads the player's bar and the record of its job, asked for
   only while the panel is open; writes nothing in the bar but one button. */
import { player } from "../player/controller.js";
import { studioUrl } from "./facts.js";
import { live, translate } from "./parts.js";
import { t } from "./strings.js";
import { esc } from "./text.js";

const ROWS = ["first", "rtf", "buf", "under"];
const sheet = () => document.getElementById("kk-figures");
const bar = q => live.player?.root.querySelector(q);
const isOpen = () => !!sheet()?.matches(":popover-open");
let record = null,
  asked = ""; // what the server last told of this job, and for which job and state it was asked

function build() {
  const meter = bar(".kk-meter");
  if (!meter || bar(".kk-figs")) return;
  meter.insertAdjacentHTML(
    "afterend",
    '<button type="button" class="kk-figs" popovertarget="kk-figures" data-a="m.all"></button>'
  );
  translate(meter.parentElement);
  /* With a mouse the figures themselves are pressed, so that each keeps its title; the button
     over them is the keyboard's and the finger's. */
  let was = false;
  // a press outside closes the panel before it becomes a click
  meter.addEventListener("pointerdown", () => (was = isOpen()));
  meter.addEventListener("click", () => was || sheet().showPopover({ source: bar(".kk-figs") }));
  if (!sheet()) {
    bar(".kk-bar").insertAdjacentHTML(
      "beforeend",
      '<div id="kk-figures" class="kk" popover></div>'
    );
    sheet().addEventListener("beforetoggle", e => e.newState === "open" && (draw(), ask()));
  }
  draw();
}
function draw() {
  const rows = ROWS.map(k => {
    const from = bar(`[data-m=${k}]`);
    return `<div><dt>${esc(t("m." + k))}<small>${esc(t(`m.${k}.t`))}</small></dt>
      <dd class="kk-num" data-tone="${from?.dataset.tone || ""}">${
        from?.innerHTML ?? "–"
      }</dd></div>`;
  });
  sheet().innerHTML = `<h2>${esc(t("m.all"))}</h2><dl>${rows.join("")}</dl><h3>${esc(
    t("sg.title")
  )}</h3><div class="kk-trace">${trace()}</div>
    <button type="button" class="kk-b2" popovertarget="kk-figures"
      popovertargetaction="hide">${esc(t("m.close"))}</button>`;
}
/* The figures tick four times a second: only their numbers are written again, so that the button
   below keeps its focus. */
function tick() {
  sheet()
    .querySelectorAll("dd")
    .forEach((dd, i) => {
      const from = bar(`[data-m=${ROWS[i]}]`),
        html = from?.innerHTML ?? "–";
      if (dd.innerHTML !== html) dd.innerHTML = html;
      dd.dataset.tone = from?.dataset.tone || "";
    });
}

// ---- stages -----------------------------------------------------------------------------------
const ms = v => (v == null ? "–" : `${v < 10 ? v.toFixed(1) : Math.round(v)}<small>ms</small>`);
function trace() {
  const { first = {}, whole = {}, first_ms, sent_ms } = record?.trace ?? {};
  const stages = [...new Set([...Object.keys(first), ...Object.keys(whole)])];
  if (!stages.length) return `<p>${esc(t(player.job ? "sg.unknown" : "sg.none"))}</p>`;
  const row = (name, a, b) =>
    `<tr><th scope="row">${esc(name)}</th><td class="kk-num">${a}</td><td
      class="kk-num">${b}</td></tr>`;
  return `<table><thead><tr><th scope="col">${esc(t("sg.stage"))}</th><th
    scope="col">${esc(t("sg.first"))}</th>
    <th scope="col">${esc(t("sg.whole"))}</th></tr></thead><tbody>${stages
      .map(s => row(t("sg.s." + s), ms(first[s]), ms(whole[s])))
      .join("")}</tbody>
    <tfoot>${row(t("sg.sum"), ms(sent_ms ?? first_ms), "–")}</tfoot></table>`;
}
/* Once per opening and per change of the stream's state: no polling. An answer that was overtaken
   is dropped. */
async function ask() {
  const { job, state } = player,
    now = (asked = `${job} ${state}`);
  let told = null;
  if (job) {
    try {
      const r = await fetch(`${studioUrl()}/tts/result/${encodeURIComponent(job)}.json`, {
        cache: "no-store"
      });
      told = r.ok ? await r.json() : null;
    } catch {
      told = null; // the link is down: the panel says that nothing is known
    }
  }
  if (now !== asked) return;
  record = told;
  sheet().querySelector(".kk-trace").innerHTML = trace();
}

document.addEventListener("kk:ready", build);
document.addEventListener("kk:lang", () => sheet() && draw());
document.addEventListener("kk:player", () => {
  if (!isOpen()) return;
  queueMicrotask(tick);
  if (asked !== `${player.job} ${player.state}`) ask();
});
