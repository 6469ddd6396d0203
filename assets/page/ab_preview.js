// @ts-check
/* A clip as it is listened to: its part alone, or A and B without a gap: both versions run on one
   clock, only the gains move. */
import { player } from "../player/controller.js";
import { acts } from "./acts.js";
import { amount, data } from "./clip_state.js";
import { toast } from "./engine_status.js";
import { studioUrl } from "./facts.js";
import { draw, live } from "./parts.js";
import { t } from "./strings.js";
import { calm } from "./theme.js";
import { draft } from "./voice_choice.js";

const FADE_S = 0.02;
let ctx = null,
  node = null; // node: {sources, gains, from, at, paired}
const sounds = new Map(); // "id/amount" -> promise of AudioBuffer
const buffer = (id, clean, varying = false) => {
  // windows and levels change the draft, not its clip
  const key = `${draft()?.clip}/${clean}/${varying}`;
  if (!sounds.has(key)) {
    if (sounds.size > 6) sounds.delete(sounds.keys().next().value);
    sounds.set(
      key,
      fetch(
        `${studioUrl()}/tts/draft/${encodeURIComponent(id)}/audio?clean=${clean}&varying=${varying}`
      )
        .then(r => {
          if (!r.ok) throw new Error(String(r.status));
          return r.arrayBuffer();
        })
        .then(b => ctx.decodeAudioData(b))
    );
    sounds.get(key).catch(() => sounds.delete(key));
  }
  return sounds.get(key);
};
const sides = d => [buffer(d.id, 0), buffer(d.id, amount(data()) / 100, !!d.varying)];
const ui = () => live.health.ui;
/* `which` ("a", "b"): both versions are wanted, at the place where the sound is now. Without it
   the part is played from its start. */
async function play(which) {
  const d = draft();
  if (!d) return;
  if (which) ui().ab = which;
  if (node?.paired && which) return swap();
  stop();
  document.dispatchEvent(new CustomEvent("kk:preview"));
  player.pause(true);
  player.silenceOthers();
  ctx ??= new AudioContext();
  ctx.resume();
  const pair = !!which || ui().ab === "b";
  try {
    const both = await Promise.all(pair ? sides(d) : [buffer(d.id, 0)]);
    begin(d, both, which && node ? place(d) : d.start_s);
  } catch {
    toast(t("err.net"));
  }
}
const place = d =>
  Math.min(d.end_s - 0.1, Math.max(d.start_s, node.from + ctx.currentTime - node.at));

function begin(d, both, from) {
  halt();
  const gains = both.map((_, i) => {
    const g = ctx.createGain();
    g.gain.value = both.length === 1 || (ui().ab === "b") === (i === 1) ? 1 : 0;
    g.connect(ctx.destination);
    return g;
  });
  const at = ctx.currentTime + 0.03,
    sources = both.map((b, i) => {
      const s = ctx.createBufferSource();
      s.buffer = b;
      s.connect(gains[i]);
      s.start(at, from, Math.max(0.05, d.end_s - from));
      return s;
    });
  node = {
    sources,
    gains,
    from,
    at,
    paired: both.length === 2
  };
  const mine = node;
  sources[0].onended = () => {
    if (node === mine) stop();
  };
  ui().sounding = true;
  draw("health");
  requestAnimationFrame(head);
}

function swap() {
  const to = ui().ab === "b" ? 1 : 0,
    now = ctx.currentTime;
  node.gains.forEach((g, i) => {
    g.gain.cancelScheduledValues(now);
    g.gain.setValueAtTime(g.gain.value, now);
    g.gain.linearRampToValueAtTime(i === to ? 1 : 0, now + FADE_S);
  });
  draw("health");
}

function head() {
  const el = live.health.root.querySelector(".kk-at"),
    d = draft();
  if (!node || !el || !d) return;
  el.hidden = false;
  el.style.left = `${(
    ((node.from + Math.max(0, ctx.currentTime - node.at)) / d.report.duration_s) * 100
  ).toFixed(2)}%`;
  if (calm()) setTimeout(head, 250);
  else requestAnimationFrame(head);
}

function halt() {
  node?.sources.forEach(s => {
    s.onended = null;
    try {
      s.stop();
    } catch {
      /* not started */
    }
  });
  node = null;
}

function stop() {
  if (!node) return;
  halt();
  ui().sounding = false;
  draw("health");
}
export const listen = {
  play,
  stop,
  moved: () => {
    const d = draft();
    if (node && d) {
      stop();
      play();
    }
  },
  amount: async () => {
    const d = draft();
    if (!node || !d) return;
    const both = await Promise.all(sides(d)).catch(() => null);
    if (both && node) begin(d, both, place(d));
  },
  get playing() {
    return !!node;
  }
};
acts.playpart = () => {
  if (node) return stop();
  play();
};
acts.ab = b => {
  ui().ab = b.dataset.v;
  draw("health");
  play(b.dataset.v);
};
