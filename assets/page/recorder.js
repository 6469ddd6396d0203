// @ts-check
/* Where a sound comes into the page: the drop zone, the recorder, and the row of a clip that is
   there. Two of them: the reference's, and on the tab Convert the one of the recording to convert.
   How a file travels is clip_upload.js. */
import { Samples } from "../player/sample_buffer.js";
import { acts } from "./acts.js";
import { health } from "./clip_report.js";
import { accept, boxOf, bring, CARDS, clear, newClip, pickFile, RECORDERS } from "./clip_upload.js";
import { facts } from "./facts.js";
import { field, setField, tabNow } from "./fields.js";
import { ico } from "./icons.js";
import { draw, live, parts } from "./parts.js";
import { t } from "./strings.js";
import { esc } from "./text.js";
import { calm, touch } from "./theme.js";
import { draft } from "./voice_choice.js";

const LEAST_S = 3,
  MOST_S = 30; // of one recording; what is converted may be shorter
const NAMES = { "#kk-ref": "ref.label", "#kk-src": "cv.label" };
const sources = { "#kk-ref": "upload", "#kk-src": "upload" };
const home = () => (tabNow() === "convert" ? "#kk-src" : "#kk-ref");
const redraw = box => draw(RECORDERS[box]);
const hasClip = box => !!live[CARDS[box]]?.data?.id;

// ---- the microphone ---------------------------------------------------------------------------
let denied = ""; // the name of the error that the browser gave last
let mics = [],
  mic = ""; // the id of the one that was chosen

/* The open microphone; null when the browser refuses, which the page says in words. */
async function openMic() {
  try {
    const stream = await navigator.mediaDevices.getUserMedia({
      audio: mic ? { deviceId: { exact: mic } } : true
    });
    denied = "";
    await listMics();
    return stream;
  } catch (e) {
    denied = e.name;
    Object.keys(RECORDERS).forEach(redraw);
    return null;
  }
}
const closeMic = stream => stream?.getTracks().forEach(track => track.stop());
/* A browser tells their names only after it gave leave to use one. */
async function listMics() {
  const all = await navigator.mediaDevices.enumerateDevices();
  mics = all.filter(d => d.kind === "audioinput" && d.label);
  if (!mics.some(d => d.deviceId === mic)) mic = "";
  Object.keys(RECORDERS).forEach(redraw);
}
navigator.mediaDevices?.addEventListener?.("devicechange", listMics);
document.addEventListener("change", e => {
  if (e.target.matches?.("[data-mic]")) mic = e.target.value;
});

// ---- from the button to the end ---------------------------------------------------------------
// { box, most_s, banked_s, since, recorder, data, context, analyser }: what is being recorded;
// since is 0 while it is paused, and there is no recorder until the browser gave its leave
let now = null;
let clock = 0,
  onto = ""; // the draft that this recording goes on from
const seconds = () => now.banked_s + (now.since && (performance.now() - now.since) / 1000);
const left = () => (now.box === "#kk-ref" ? Math.max(0, LEAST_S - seconds()) : 0);
const room = () => Math.min(MOST_S, facts.max_clip_s - 0.5 - (draft()?.report.duration_s ?? 0));

async function begin(box) {
  discard();
  if (!onto) clear(box);
  sources[box] = "mic";
  const mine = (now = {
    box,
    most_s: onto ? room() : MOST_S,
    banked_s: 0,
    since: 0,
    recorder: null,
    data: null,
    context: null,
    analyser: null
  });
  redraw(box);
  const stream = await openMic();
  if (now !== mine) return closeMic(stream); // given up while the browser asked
  if (!stream) return discard();
  mine.recorder = new MediaRecorder(stream);
  mine.data = new Promise(done =>
    mine.recorder.addEventListener("dataavailable", e => done(e.data))
  );
  mine.context = new AudioContext();
  mine.analyser = mine.context.createAnalyser();
  // and on to nowhere: nobody hears themselves
  mine.context.createMediaStreamSource(stream).connect(mine.analyser);
  mine.recorder.start();
  mine.since = performance.now();
  line = t("ref.line");
  redraw(box);
  tick();
  level(mine);
}
/* Of words that change: once at each whole second until it may end, and then when it ends by
   itself. */
function tick() {
  clearTimeout(clock);
  const wait = left();
  nameEnd();
  if (now.since)
    clock = setTimeout(
      wait ? tick : finish,
      1000 * (wait ? wait % 1 || 1 : now.most_s - seconds())
    );
}
/* Gives up what is being recorded. */
function discard() {
  const { box, recorder, context } = now ?? {};
  clearTimeout(clock);
  now = null;
  closeMic(recorder?.stream);
  context?.close();
  if (box) redraw(box);
}
/* Sends the recording to the studio. */
async function finish() {
  if (!now?.recorder || left()) return;
  const { box, data, context, recorder } = now,
    after = onto,
    read = line;
  if (recorder.state !== "inactive") recorder.stop(); // it is when its microphone was unplugged
  now.context = null; // what was heard is read with it
  discard();
  const file = await wavOf(await data, context);
  context.close();
  bring(box, file, after);
  if (box === "#kk-ref" && !after) fresh = read;
}
/* A recording as a WAV file; as it is, for the studio to judge, when the browser cannot read it. */
async function wavOf(recording, context) {
  try {
    const sound = await context.decodeAudioData(await recording.arrayBuffer());
    const wave = new Samples(sound.sampleRate);
    wave.append(sound.getChannelData(0).map(x => 32767 * Math.max(-1, Math.min(1, x))));
    return new File([wave.wav("")], `${t("cv.mic")}.wav`, { type: "audio/wav" });
  } catch {
    return new File([recording], `${t("cv.mic")}.webm`, { type: recording.type });
  }
}
function pause() {
  if (!now?.recorder) return;
  if (now.since) {
    now.banked_s = seconds();
    now.since = 0;
    now.recorder.pause();
  } else {
    now.since = performance.now();
    now.recorder.resume();
  }
  redraw(now.box);
  tick();
}
/* Whatever came in, nothing waits to go on any more. */
document.addEventListener("kk:bring", () => {
  discard();
  onto = fresh = "";
});

// ---- presses ----------------------------------------------------------------------------------
acts.record = () => {
  if (now?.box === home() && now.recorder) return finish();
  onto = "";
  if (home() === "#kk-src") return begin("#kk-src");
  newClip(() => begin("#kk-ref"));
};
/* A recording that goes on from the draft; beside a clip without room for more it begins anew. */
export const recordMore = () => {
  onto = room() > LEAST_S ? draft().id : "";
  newClip(() => begin("#kk-ref"));
};
export const recordAnew = () => {
  onto = "";
  newClip(() => begin("#kk-ref"));
};
acts.recordclip = b => {
  onto = "";
  begin(boxOf(b));
};
acts.endclip = finish;
acts.pauseclip = pause;
acts.removeclip = b => {
  const box = boxOf(b);
  onto = "";
  discard();
  clear(box);
};
acts.soundsource = async b => {
  const box = boxOf(b),
    is_mic = b.dataset.v === "mic",
    is_on = now?.box === box;
  if (is_mic && is_on) return;
  if (!is_mic && !is_on && hasClip(box)) return pickFile(box); // what is there stays until then
  onto = "";
  discard();
  clear(box);
  sources[box] = b.dataset.v;
  redraw(box);
  if (is_mic) closeMic(await openMic());
};

// ---- what is drawn ----------------------------------------------------------------------------
parts.recorder = root => {
  const box = boxOf(root),
    part = live[RECORDERS[box]],
    is_on = now?.box === box,
    source = is_on ? "mic" : hasClip(box) ? "clip" : sources[box];
  const from = (v, key, icon) =>
    `<button type="button" data-do="soundsource" data-v="${v}"
      aria-pressed="${sources[box] === v}">${ico(icon, 17)}${esc(t(key))}</button>`;
  const remove = `<button type="button" class="kk-iconb" data-do="removeclip" title="${esc(
    t("ref.clear")
  )}" aria-label="${esc(t("ref.clear"))}">${ico("close")}</button>`;
  const html = `<div class="kk kk-recorder" data-source="${source}">${
    source === "upload"
      ? zone()
      : source === "clip"
        ? `<b>${esc(t(NAMES[box]))}</b>`
        : `<div class="kk-rec">${is_on ? controls() : recordButton()}${chooser()}</div>`
  }<div class="kk-sources">${from("upload", "ref.upload", "up")}${from("mic", "ref.mic", "mic")}${
    is_on || source === "clip" ? remove : ""
  }</div></div>${source === "mic" ? lines(is_on) : ""}`;
  if (part.html !== html) {
    // else a list that is open stays open
    const hadFocus = root.contains(document.activeElement);
    root.innerHTML = part.html = html;
    if (hadFocus) queueMicrotask(() => keepFocus(root)); // draw() goes first
  }
  nameEnd();
};
/* What was pressed may be gone: the focus goes to what takes its place. */
function keepFocus(root) {
  if (root.contains(document.activeElement)) return;
  const to = ["[data-do=endclip]", "[data-do=recordclip]", "input", "button"];
  root.querySelector(to.find(q => root.querySelector(q))).focus({ preventScroll: true });
}
/* Nobody drags a file with a finger. */
const zone = () =>
  `<label class="kk-drop"><input type="file" class="kk-vh" accept="${accept}"
    aria-label="${esc(t("ref.upload"))}">${ico("up", 24)}<span>${
      touch.matches
        ? esc(t("ref.tap"))
        : ["ref.drop", "ref.or", "ref.click"].map(key => esc(t(key))).join("<br>")
    }</span></label>`;
const recordButton = () =>
  `<button type="button" class="kk-recgo" data-do="recordclip"><i class="kk-recdot"></i>${esc(
    t("ref.rec")
  )}</button>`;
const is_paused = () => now.recorder?.state === "paused";
const controls = () =>
  `<button type="button" class="kk-b2" data-do="endclip" aria-disabled="true"><i></i><span></span>
  </button><button type="button" class="kk-b2" data-do="pauseclip" aria-label="${esc(
    t(is_paused() ? "ref.resume" : "ref.pause")
  )}">${is_paused() ? esc(t("ref.resume")) : ico("pause", 16)}</button>`;
const chooser = () =>
  mics.length
    ? `<select data-mic aria-label="${esc(t("ref.input"))}"${now ? " disabled" : ""}>${mics
        .map(
          d =>
            `<option value="${esc(d.deviceId)}"${d.deviceId === mic ? " selected" : ""}>${esc(
              d.label
            )}</option>`
        )
        .join("")}</select>`
    : "";
/* Something to read and how loud it comes in, or why the microphone does not work. */
function lines(is_on) {
  const why =
    !window.isSecureContext || !navigator.mediaDevices
      ? "ref.mic.insecure"
      : denied === "NotFoundError"
        ? "ref.mic.none"
        : denied
          ? "ref.mic.denied"
          : "";
  const words = t(why || "ref.read", { line: t("ref.line") });
  return why
    ? `<p class="kk kk-inline kk-micline" data-tone="warn" role="status">${esc(words)}</p>`
    : `<div class="kk kk-micline"><div class="kk-recrow" data-on="${is_on && !!now.recorder}"><i
        class="kk-recdot"></i><span class="kk-num">0:00</span>
        <span class="kk-level" role="img" aria-label="${esc(t("ref.level"))}"><i></i></span></div>
      <p class="kk-inline">${esc(words)}</p></div>`;
}
/* What the end button says, and whether it may be pressed: in place, it may be under a finger. */
function nameEnd() {
  const b = now && live[RECORDERS[now.box]].root.querySelector("[data-do=endclip]");
  if (!b) return;
  const wait = left(),
    words = wait ? t("ref.rec.wait", { n: Math.ceil(wait) }) : t("ref.stop");
  b.ariaDisabled = String(wait > 0);
  if (b.lastElementChild.textContent !== words) b.lastElementChild.textContent = words;
}
const samples = new Float32Array(2048);
const FLOOR_DB = -55; // of a quiet room
/* Seconds and level, while it records. */
function level(mine) {
  if (now !== mine) return;
  const row = live[RECORDERS[now.box]].root.querySelector(".kk-recrow");
  now.analyser.getFloatTimeDomainData(samples);
  const power = samples.reduce((sum, x) => sum + x * x, 0) / samples.length,
    s = Math.floor(seconds());
  const share = now.since ? Math.max(0, 1 - (10 * Math.log10(power + 1e-9)) / FLOOR_DB) : 0;
  row.querySelector(".kk-level i").style.transform = `scaleX(${Math.min(1, share).toFixed(3)})`;
  const text = row.querySelector(".kk-num").firstChild,
    told = `0:${String(s).padStart(2, "0")}`;
  if (text.data !== told) text.data = told;
  if (calm()) setTimeout(level, 250, mine);
  else requestAnimationFrame(() => level(mine));
}

// ---- the line that was read aloud is the transcript, until somebody writes another ------------
let line = "",
  fresh = "", // the line, while what is being looked at is a recording of its own
  written = "",
  clip = "";
document.addEventListener("kk:draft", () => {
  redraw("#kk-ref");
  const d = draft(),
    words = field("kk-transcript");
  if (!d || !words || d.clip === clip) return;
  clip = d.clip;
  const is_ours = !!written && words.value === written;
  if (words.value.trim() && !is_ours) return;
  written = fresh;
  if (written || is_ours) setField("kk-transcript", written);
  const ui = health.card().ui;
  ui.read = written;
  if (health.pace(d)) ui.fits = false; // nobody says it in that time
  if (written) document.documentElement.dataset.voice = "open"; // what was written must be seen
  ["fit", "title_voice"].forEach(draw);
});
