// @ts-check
/* The clip on its way in: whatever is chosen or let go is checked here, sent, and read by the
   studio, and only what was read takes the place of the clip that is there. What is recorded is
   recorder.js, how it sounds ab_preview.js. */
import { listen } from "./ab_preview.js";
import { acts } from "./acts.js";
import { sourceIn, sourceOut } from "./convert.js";
import { facts, strings, studioUrl } from "./facts.js";
import { choose, setMode, tab, tabNow } from "./fields.js";
import { draw, live, send } from "./parts.js";
import { lang } from "./strings.js";
import { noClip, source } from "./voice_choice.js";

const MB = 2 ** 20;
const SOUNDS = [
  "wav",
  "mp3",
  "m4a",
  "flac",
  "ogg",
  "oga",
  "opus",
  "aac",
  "aif",
  "aiff",
  "caf",
  "amr"
];
const VIDEOS = ["mp4", "m4v", "mov", "webm", "mkv"];
const named = list => new RegExp(`\\.(${list.join("|")})$`, "i");
const SOUND = named(SOUNDS),
  VIDEO = named(VIDEOS);
export const accept = ["audio/*", "video/*", ...[...SOUNDS, ...VIDEOS].map(s => "." + s)].join();
// what belongs to each of the two places: its card, its recorder, what empties it
export const CARDS = { "#kk-ref": "health", "#kk-src": "source" };
export const RECORDERS = { "#kk-ref": "recorder", "#kk-src": "recorder_src" };
const begin = { "#kk-ref": checking, "#kk-src": stays => sourceIn(stays) };
const empty = { "#kk-ref": cleared, "#kk-src": () => sourceOut() };
export const boxOf = el => Object.keys(CARDS).find(box => el.closest?.(box));
const fault = key => ({
  error: { zh: strings.zh[key], en: strings.en[key], code: key }
});

/* The string of what is wrong with a file that cannot work, so that it need not travel; ""
   otherwise. */
function wrong(file) {
  const is_video = VIDEO.test(file.name) || file.type.startsWith("video/");
  const is_sound = SOUND.test(file.name) || file.type.startsWith("audio/");
  if (!is_video && !is_sound) return "err.bad_audio";
  const most_mb = is_video ? facts.max_video_mb : facts.max_clip_mb;
  return file.size > most_mb * MB ? "err.too_large" : "";
}

function refuse(box, why) {
  const card = live[CARDS[box]];
  card.busy = false;
  card.data = why;
  draw(CARDS[box]);
  draw(RECORDERS[box]);
}
/* `after`: for a recording, the draft that it goes on from, "" for none. A file that was chosen
   does not give up the clip that is there before it was read. */
export async function bring(box, file, after) {
  const card = live[CARDS[box]],
    key = wrong(file);
  if (key) return refuse(box, fault(key));
  document.dispatchEvent(new CustomEvent("kk:bring"));
  begin[box](after !== "");
  draw(RECORDERS[box]);
  const n = (card.wish = (card.wish || 0) + 1),
    form = new FormData();
  form.append("files", file, file.name);
  try {
    const answer = await fetch(`${studioUrl()}/gradio_api/upload`, {
      method: "POST",
      body: form,
      headers: { "Accept-Language": lang }
    });
    if (n !== card.wish) return;
    const told = await answer.json();
    const why = told.error?.message; // in the language of the page
    if (!answer.ok) return refuse(box, { error: { zh: why, en: why } });
    send(CARDS[box], { op: "clip", path: told[0], n, after });
  } catch {
    if (n === card.wish) refuse(box, fault("err.upload"));
  }
}
document.addEventListener("change", e => {
  const file = e.target.matches?.(".kk-drop input") && e.target.files[0];
  if (!file) return;
  bring(boxOf(e.target), file);
  e.target.value = ""; // the same file may be chosen again
});
/* Let go beside the drop zone, a file would take the place of the page: it is the clip that was
   meant. What takes files itself is left to it. */
const isOurs = e =>
  e.dataTransfer?.types.includes("Files") &&
  !e.defaultPrevented &&
  (boxOf(e.target) || !e.target.closest?.("input[type=file]"));
const mark = zone =>
  document
    .querySelectorAll(".kk-recorder")
    .forEach(e => e.toggleAttribute("data-over", e === zone));
document.addEventListener("dragover", e => {
  if (!isOurs(e)) return;
  e.preventDefault();
  mark(e.target.closest?.(".kk-recorder"));
});
document.addEventListener("dragleave", () => mark(null));
document.addEventListener("drop", e => {
  mark(null);
  if (!isOurs(e)) return;
  e.preventDefault();
  const file = e.dataTransfer.files[0],
    box = boxOf(e.target) ?? (tabNow() === "convert" ? "#kk-src" : "#kk-ref");
  if (!file || !["speak", "voices", "convert"].includes(tabNow())) return;
  if (boxOf(e.target) || box === "#kk-src") bring(box, file);
  else newClip(() => bring(box, file));
});

const picker = document.createElement("input");
picker.type = "file";
picker.accept = accept;
let picks = "#kk-ref";
picker.addEventListener("change", () => picker.files[0] && bring(picks, picker.files[0]));
export function pickFile(box) {
  picks = box;
  picker.value = "";
  picker.click();
}
/* `stays`: the clip that is there is not given up before the new one was read. */
function checking(stays) {
  listen.stop();
  live.health.busy = true;
  if (!stays) live.health.data = null;
  live.need.data = null;
  ["health", "need", "fit"].forEach(draw);
  document.documentElement.dataset.clip = "in";
}
function cleared() {
  listen.stop();
  live.health.busy = false;
  live.health.data = null;
  live.need.data = null;
  ["health", "need", "title_voice", "fit"].forEach(draw);
}
export const clear = box => {
  empty[box]();
  draw(RECORDERS[box]);
};

export const newClip = then => {
  if (!document.querySelector("#kk-voice")?.offsetParent) tab("speak");
  document.documentElement.dataset.voice = "open";
  draw("title_voice");
  if (noClip()) setMode("zero_shot");
  if (source() !== "new") choose("kk-source", "new");
  then();
};
acts.otherclip = acts.import = () => newClip(() => pickFile("#kk-ref"));
acts.dismiss = b => {
  live[b.dataset.card].refused = null;
  draw(b.dataset.card);
};
