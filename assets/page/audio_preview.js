// @ts-check
/* Takes, voices and recordings as they are listened to: one sound at a time, seeking on the card's
   own wave. The stream that is being made is the player's. */
import { player } from "../player/controller.js";
import { listen } from "./ab_preview.js";
import { acts } from "./acts.js";
import { toast, usualVoice } from "./engine_status.js";
import { studioUrl } from "./facts.js";
import { ico } from "./icons.js";
import { live } from "./parts.js";
import { t } from "./strings.js";
import { clock } from "./text.js";
import { calm } from "./theme.js";

export const takeUrl = id => `${studioUrl()}/tts/result/${encodeURIComponent(id)}.wav`;
const find = id => live.takes.data.find(k => k.id === id);
const sound = new Audio();
sound.preload = "none";
let now = {
  id: "",
  kind: ""
};
export const stopPreview = () => {
  if (!sound.paused) sound.pause();
  listen.stop();
};
document.addEventListener("kk:preview", () => sound.pause()); // a clip is listened to instead

function play(id, kind, src) {
  if (now.id === id && now.kind === kind) {
    if (sound.paused) {
      begin();
    } else sound.pause();
    return;
  }
  const before = now;
  now = {
    id,
    kind
  };
  sound.src = src;
  paint(before);
  begin();
}

function begin() {
  player.pause(true);
  player.silenceOthers();
  listen.stop();
  sound.play().catch(e => {
    if (e.name !== "AbortError") toast(t("takes.nofile"));
  });
}
export const playSource = id =>
  play(id, "source", `${studioUrl()}/tts/draft/${encodeURIComponent(id)}/audio?clean=0`);
/* Where the natural voice speaks, a starter is heard as it will sound, and not as the
   synthesizer's clip that it is made from. */
export const playVoice = id =>
  play(
    id,
    "voice",
    `${studioUrl()}/v1/audio/voices/${encodeURIComponent(id)}/sample${
      usualVoice() === "natural" ? "?natural=true" : ""
    }`
  );
export const playLine = (id, src) => play(id, "line", src);
export const sounding = (id, kind) => now.id === id && now.kind === kind && !sound.paused;
acts.playtake = el => play(el.dataset.id, "take", takeUrl(el.dataset.id));

function paint(w) {
  if (w.kind !== "take") {
    const what = { voice: "playvoice", line: "playline" }[w.kind] || "playsource",
      on = sounding(w.id, w.kind);
    document
      .querySelectorAll(`[data-do=${what}][data-id="${CSS.escape(w.id)}"] svg`)
      .forEach(svg => {
        svg.outerHTML = ico(on ? "pause" : "play", parseInt(svg.style.width, 10));
      });
    return;
  }
  const el = live.takes?.root.querySelector(`[data-do=playtake][data-id="${CSS.escape(w.id)}"]`);
  if (!el) return;
  const on = sounding(w.id, "take");
  el.innerHTML = ico(on ? "pause" : "play", 20);
  el.setAttribute("aria-label", t(on ? "bar.pause" : "bar.play") + ": " + (find(w.id)?.text || ""));
}
for (const n of ["play", "pause", "ended"])
  sound.addEventListener(n, () => {
    paint(now);
    if (n === "play") tick();
  });

export const soundHead = () => {
  if (now.kind !== "take") return;
  const el = live.takes.root.querySelector(`.kk-mini[data-id="${CSS.escape(now.id)}"]`);
  if (!el) return;
  const k = find(now.id),
    dur = k.n_samples / k.sample_rate;
  el.style.setProperty("--p", `${((sound.currentTime / dur) * 100).toFixed(1)}%`);
  el.setAttribute("aria-valuenow", String(Math.round(sound.currentTime)));
  el.setAttribute("aria-valuetext", `${clock(sound.currentTime)} / ${clock(dur)}`);
};

function tick() {
  soundHead();
  if (!sound.paused) (calm() ? f => setTimeout(f, 250) : requestAnimationFrame)(tick);
}

function seek(id, s) {
  const k = find(id),
    to = Math.max(0, Math.min(k.n_samples / k.sample_rate - 0.05, s));
  if (now.id !== id || now.kind !== "take") {
    const before = now;
    now = {
      id,
      kind: "take"
    };
    sound.src = takeUrl(id);
    paint(before);
  }
  sound.currentTime = to;
  soundHead();
  if (sound.paused) begin();
}
document.addEventListener("pointerdown", e => {
  const el = e.target.closest?.(".kk-mini");
  if (!el) return;
  const r = el.getBoundingClientRect(),
    k = find(el.dataset.id);
  seek(k.id, (((e.clientX - r.left) / r.width) * k.n_samples) / k.sample_rate);
});
document.addEventListener("keydown", e => {
  const el = e.target;
  if (!el.matches?.(".kk-mini")) return;
  const d = {
    ArrowLeft: -2,
    ArrowRight: 2,
    Home: -1e9,
    End: 1e9
  }[e.key];
  if (d) {
    e.preventDefault();
    seek(el.dataset.id, (now.id === el.dataset.id ? sound.currentTime : 0) + d);
  }
});
