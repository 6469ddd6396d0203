// @ts-check
/* The recorder: when it may end and when it does by itself, how a take goes on after what is there,
   and the words below it. Two of them: the reference's, and on the tab Convert the one of the
   recording to convert. */
import { acts } from "./acts.js";
import { health } from "./clip_report.js";
import { newClip } from "./clip_upload.js";
import { facts } from "./facts.js";
import { field, setField, tabNow, when } from "./fields.js";
import { draw, parts } from "./parts.js";
import { draft } from "./speak_form.js";
import { t } from "./strings.js";
import { esc } from "./text.js";
import { calm, nameGroups } from "./theme.js";

const LEAST_S = 3,
  MOST_S = 30; // of one recording; what is converted may be shorter
const home = () => (tabNow() === "convert" ? "#kk-src" : "#kk-ref");
const within = q => document.querySelector(`${home()} ${q}`);
const source = i => document.querySelectorAll(home() + " .source-selection button")[i];

// ---- from the button to the end ---------------------------------------------------------------
// { box, most_s, banked_s, since }: what is being recorded; since is 0 while it is paused
let now = null;
let micDenied = ""; // the name of the error that the microphone gave
let clock = 0,
  onto = ""; // onto: the draft that the next recording goes on from
const seconds = () => now.banked_s + (now.since && (performance.now() - now.since) / 1000);
const left = box => (now?.box === box && box === "#kk-ref" ? Math.max(0, LEAST_S - seconds()) : 0);

/* Gradio tells when sound comes in, which is not when the button was pressed: the browser may ask
   first. */
function begun(box) {
  now = { box, most_s: onto ? room() : MOST_S, banked_s: 0, since: performance.now() };
  line = t("ref.line");
  tick();
  mics();
  listen();
}
/* Of words that change: once at each whole second until it may end, and then when it ends by
   itself. */
function tick() {
  clearTimeout(clock);
  if (!now) return;
  const wait = left(now.box);
  nameGroups();
  if (now.since)
    clock = setTimeout(wait ? tick : end, 1000 * (wait ? wait % 1 || 1 : now.most_s - seconds()));
}
function end() {
  document.querySelector(`${now.box} .stop-button`)?.click();
}
function over() {
  clearTimeout(clock);
  now = null;
  mics();
}
function pause(is_on) {
  if (!now || is_on === !now.since) return;
  now.banked_s = seconds();
  now.since = is_on ? 0 : performance.now();
  tick();
}
const boxOf = e => "#" + e.target.closest?.("#kk-ref, #kk-src")?.id;
document.addEventListener(
  "click",
  e => {
    const box = boxOf(e),
      on = q => e.target.closest(q);
    if (box === "#undefined") return;
    if (on(".stop-button, .stop-button-paused")) {
      if (!left(box)) return over();
      e.preventDefault();
      e.stopImmediatePropagation(); // before Gradio hears of it
    } else if (on(".record-button")) {
      // nothing is heard yet
      now = { box, most_s: MOST_S, banked_s: 0, since: 0 };
      nameGroups();
    } else if (on(".pause-button")) pause(true);
    else if (on(".resume-button")) pause(false);
    else if (on(".source-selection button, .icon-button-wrapper button")) {
      over();
      if (e.isTrusted) onto = ""; // the visitor's own wish, not ours on the way to the recorder
    }
  },
  true
);

// ---- a take goes on ---------------------------------------------------------------------------
const room = () => Math.min(MOST_S, facts.max_clip_s - 0.5 - (draft()?.report.duration_s ?? 0));
export const tape = {
  begun,
  isFresh: false, // what is being looked at is a recording of its own
  goesOn: () => !!onto,
  /* What the end button says, and whether it may be pressed. */
  end: box =>
    left(box)
      ? { words: t("ref.rec.wait", { n: Math.ceil(left(box)) }), early: true }
      : { words: t("ref.stop"), early: false },
  /* The draft to go on from, told once; "" for a recording that begins anew. */
  after: () => {
    const id = onto;
    onto = "";
    tape.isFresh = false;
    return id;
  },
  more: () => {
    // beside a clip without room for more it can only begin anew
    onto = room() > LEAST_S ? draft().id : "";
    acts.record();
  },
  anew: () => {
    onto = "";
    acts.record();
  }
};
acts.record = () => (home() === "#kk-src" ? record() : newClip(record));
function record() {
  const stop = within("button.stop-button") || within(".stop-button-paused");
  if (stop?.offsetParent) return stop.click();
  if (within("audio.standard-player")) within(".icon-button-wrapper button")?.click();
  when(
    () => source(1),
    b => {
      b.click();
      when(
        () => within(".record-button"),
        r => r.click(),
        60
      );
    }
  );
}

// ---- the sentence below it: something to read, or why the microphone does not work ------------
parts.mic = root => {
  const why =
    !window.isSecureContext || !navigator.mediaDevices
      ? "ref.mic.insecure"
      : micDenied === "NotFoundError"
        ? "ref.mic.none"
        : micDenied
          ? "ref.mic.denied"
          : "";
  const words = t(why || "ref.read", { line: t("ref.line") });
  root.innerHTML = why
    ? `<p class="kk kk-inline kk-micline" data-tone="warn" role="status">${esc(words)}</p>`
    : `<div class="kk"><div class="kk-recrow" data-on="${!!now}"><i class="kk-recdot"></i><span
      class="kk-num">0:00</span>
      <span class="kk-level" role="img" aria-label="${esc(t("ref.level"))}"><i></i></span></div>
    <p class="kk-inline kk-micline">${esc(words)}</p></div>`;
};
const mics = () => ["mic", "mic_src"].forEach(draw);

// ---- red dot, seconds and level, while it records ---------------------------------------------
let stream = null,
  meter = null; // of the microphone; { context, analyser } while something is recorded
function listen() {
  meter?.context.close();
  meter = null;
  if (stream?.active) {
    const context = new AudioContext(),
      analyser = context.createAnalyser();
    // and on to nowhere: nobody hears themselves
    context.createMediaStreamSource(stream).connect(analyser);
    meter = { context, analyser };
  }
  level();
}
const samples = new Float32Array(2048);
const FLOOR_DB = -55; // of a quiet room
function level() {
  const row = document.querySelector(
    now?.box === "#kk-src" ? "#kk-micsrc .kk-recrow" : "#kk-mic .kk-recrow"
  );
  if (!now || !row) {
    meter?.context.close();
    meter = null;
    return;
  }
  meter?.analyser.getFloatTimeDomainData(samples);
  const power = samples.reduce((sum, x) => sum + x * x, 0) / samples.length,
    s = Math.floor(seconds());
  const share =
    meter && now.since ? Math.max(0, 1 - (10 * Math.log10(power + 1e-9)) / FLOOR_DB) : 0;
  row.querySelector(".kk-level i").style.transform = `scaleX(${Math.min(1, share).toFixed(3)})`;
  const text = row.querySelector(".kk-num").firstChild,
    told = `0:${String(s).padStart(2, "0")}`;
  if (text.data !== told) text.data = told;
  if (calm()) setTimeout(level, 250);
  else requestAnimationFrame(level);
}

// ---- the line that was read aloud is the transcript, until somebody writes another ------------
let line = "",
  written = "",
  clip = "";
document.addEventListener("kk:draft", () => {
  const d = draft(),
    words = field("kk-transcript");
  if (!d || !words || d.clip === clip) return;
  clip = d.clip;
  const is_ours = !!written && words.value === written;
  if (words.value.trim() && !is_ours) return;
  written = tape.isFresh ? line : "";
  if (written || is_ours) setField("kk-transcript", written);
  const ui = health.card().ui;
  ui.read = written;
  if (health.pace(d)) ui.fits = false; // nobody says it in that time
  if (written) document.documentElement.dataset.voice = "open"; // what was written must be seen
  ["fit", "title_voice"].forEach(draw);
});
document.addEventListener("click", e => {
  const b = e.target.closest?.(":is(#kk-ref, #kk-src) .source-selection button");
  if (b)
    document.documentElement.dataset[b.closest("#kk-src") ? "micsrc" : "mic"] =
      b === source(1) ? "on" : "off";
});
if (navigator.mediaDevices?.getUserMedia) {
  const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (...a) => {
    try {
      const s = await ask(...a);
      stream = s;
      if (micDenied) {
        micDenied = "";
        mics();
      }
      return s;
    } catch (e) {
      if (["NotAllowedError", "NotFoundError"].includes(e.name)) {
        micDenied = e.name;
        mics();
      }
      throw e;
    }
  };
}
