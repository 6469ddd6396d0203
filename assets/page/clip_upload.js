// @ts-check
/* The clip on its way in: whatever is chosen or let go is checked here, sent, and read by the
   studio, and only what was read takes the place of the clip that is there. What is recorded is
   recorder.js, how it sounds ab_preview.js. */
import { listen } from "./ab_preview.js";
import { acts } from "./acts.js";
import { sourceIn } from "./convert.js";
import { facts, strings, studioUrl } from "./facts.js";
import { choose, setMode, tab, tabNow } from "./fields.js";
import { draw, live, send } from "./parts.js";
import { tape } from "./recorder.js";
import { noClip, source } from "./speak_form.js";
import { lang } from "./strings.js";

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
const CARDS = { "#kk-ref": "health", "#kk-src": "source" };
const begin = { "#kk-ref": () => checking(true), "#kk-src": () => sourceIn(true) };
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
}
/* Gradio's own upload would show the file before anybody has looked at it, and speak English:
   this is the same route without its widget. */
async function bring(box, file) {
  const card = live[CARDS[box]],
    key = wrong(file);
  if (key) return refuse(box, fault(key));
  begin[box]();
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
    send(CARDS[box], { op: "clip", path: told[0], n });
    card.file = { path: told[0], orig_name: file.name, size: file.size };
  } catch {
    if (n === card.wish) refuse(box, fault("err.upload"));
  }
}
/* The studio has read it: now Gradio's widget holds it too, and shows its row with the buttons.
 */
export const placed = card => {
  const { path, orig_name, size } = live[card].file;
  const url = `${studioUrl()}/gradio_api/file=${encodeURIComponent(path)}`;
  const meta = { _type: "gradio.FileData" };
  return { path, url, orig_name, size, mime_type: "audio/wav", is_stream: false, meta };
};

const boxOf = el => Object.keys(CARDS).find(box => el.closest?.(box));
const stop = e => {
  e.preventDefault();
  e.stopImmediatePropagation(); // before Gradio hears of it
};
document.addEventListener(
  "change",
  e => {
    const box = e.target.matches?.("input[type=file]") && boxOf(e.target);
    const file = box && e.target.files[0];
    if (!file) return;
    stop(e);
    e.target.value = "";
    bring(box, file);
  },
  true
);
const hasFile = e => e.dataTransfer?.types.includes("Files");
document.addEventListener(
  "drop",
  e => {
    const box = hasFile(e) && boxOf(e.target),
      file = box && e.dataTransfer.files[0];
    if (!box) return;
    stop(e);
    e.target.dispatchEvent(new DragEvent("dragleave", { bubbles: true })); // it stays highlighted
    if (file) bring(box, file);
  },
  true
);
/* Let go beside the drop zone, a file would take the place of the page: it is the clip that was
   meant. What a zone takes itself is left to it. */
const beside = e => hasFile(e) && !e.defaultPrevented && !e.target.closest?.("input[type=file]");
document.addEventListener("dragover", e => beside(e) && e.preventDefault());
document.addEventListener("drop", e => {
  if (!beside(e)) return;
  e.preventDefault();
  const file = e.dataTransfer.files[0];
  const box = tabNow() === "convert" ? "#kk-src" : "#kk-ref";
  if (!file || !["speak", "voices", "convert"].includes(tabNow())) return;
  if (box === "#kk-src") bring(box, file);
  else newClip(() => bring(box, file));
});

const picker = document.createElement("input");
picker.type = "file";
picker.accept = accept;
let picks = "#kk-ref";
picker.addEventListener("change", () => picker.files[0] && bring(picks, picker.files[0]));
function pick(box) {
  picks = box;
  picker.value = "";
  picker.click();
}
/* Beside a clip the button of the upload brings another one; what is there stays until then. */
document.addEventListener(
  "click",
  e => {
    const b = e.target.closest?.(".source-selection button"),
      box = b && boxOf(b);
    if (!box || b !== b.parentElement.querySelector("button")) return;
    if (!document.querySelector(box + " audio.standard-player")) return;
    stop(e);
    pick(box);
  },
  true
);

/* `stays`: the clip that is there is not given up before the new one was read. */
export const checking = stays => {
  tape.after(); // whatever came in, nothing waits to go on any more
  listen.stop();
  live.health.busy = true;
  if (!stays) live.health.data = null;
  live.need.data = null;
  ["health", "need", "fit"].forEach(draw);
  document.documentElement.dataset.clip = "in";
};
export const cleared = () => {
  if (tape.goesOn()) return; // only the recorder is made free: the clip stays
  listen.stop();
  live.health.busy = false;
  live.health.data = null;
  live.need.data = null;
  ["health", "need", "title_voice", "fit"].forEach(draw);
};

export const newClip = then => {
  if (!document.querySelector("#kk-voice")?.offsetParent) tab("speak");
  document.documentElement.dataset.voice = "open";
  draw("title_voice");
  if (noClip()) setMode("zero_shot");
  if (source() !== "new") choose("kk-source", "new");
  then();
};
acts.otherclip = acts.import = () => newClip(() => pick("#kk-ref"));
acts.dismiss = b => {
  live[b.dataset.card].refused = null;
  draw(b.dataset.card);
};
