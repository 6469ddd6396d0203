// @ts-check
/* The player bar: one view of the player's state. Draws words, wave and figures, and turns presses
   into calls of the player. Knows no socket and no sample. */
import { acts } from "../page/acts.js";
import { barHtml, mac } from "../page/facts.js";
import { ico } from "../page/icons.js";
import { live, parts } from "../page/parts.js";
import { t } from "../page/strings.js";
import { clock } from "../page/text.js";
import { player } from "./controller.js";
import { hooks } from "./hooks.js";

const TONE = {
  stalled: "warn",
  slow: "warn",
  locked: "warn",
  reconnect: "warn",
  restarting: "warn",
  failed: "bad",
  novoice: "warn",
  notext: "warn"
};
const GO = { queued: "bar.leave", locked: "bar.tap", failed: "bar.retry" };
const PEAK_HZ = 100,
  STEP = 5;
const root = () => live.player?.root,
  q = s => root()?.querySelector(s);
const got = () => player.peaks.length / PEAK_HZ;
let drag = null,
  frame = 0,
  wordsAt = 0,
  colours = null,
  scaledAt = 0;

parts.player = r => {
  if (!r.querySelector(".kk-bar")) r.innerHTML = barHtml;
  paint(true);
};
const text = (el, s) => {
  if (el && el.textContent !== s) el.textContent = s;
}; // untouched nodes stay silent for screen readers
const attr = (el, k, v) => {
  if (el.getAttribute(k) !== String(v)) el.setAttribute(k, v);
};

// ---- words and buttons ------------------------------------------------------------------------
function paint(words) {
  const bar = q(".kk-bar");
  if (!bar) return;
  const busy = player.busy(),
    s = player.state,
    kind = busy && s !== "locked" ? "stop" : "go",
    go = q(".kk-go"),
    look = kind + s;
  attr(bar, "data-state", s);
  attr(bar, "data-tone", TONE[s] || "");
  attr(go, "data-kind", kind);
  if (go.dataset.look !== look) {
    go.dataset.look = look;
    q(".kk-goico").innerHTML = ico(kind === "stop" ? "stop" : s === "locked" ? "play" : "wave", 20);
  }
  text(go.querySelector("kbd"), kind === "stop" ? "Esc" : mac ? "⌘↵" : "Ctrl ↵");
  text(q(".kk-golabel"), t(GO[s] || (busy ? "bar.stop" : hooks.goLabel() || "bar.go")));
  const on = String(player.sounding),
    pp = q(".kk-pp"),
    save = q("[data-do=save]"),
    more = q("[data-do=second]"),
    act = second();
  pp.disabled = !player.peaks.length;
  attr(pp, "aria-label", t(player.sounding ? "bar.pause" : "bar.play"));
  if (pp.dataset.on !== on) {
    pp.dataset.on = on;
    pp.innerHTML = ico(player.sounding ? "pause" : "play", 20);
  }
  save.disabled = !player.peaks.length;
  save.innerHTML ||= ico("down");
  attr(save, "aria-label", t(player.whole ? "bar.save" : "bar.savepart"));
  attr(save, "title", t(player.whole ? "bar.save" : "bar.savepart"));
  more.hidden = !act;
  if (act) text(more, t(act));
  if (words) say();
  figures();
  tick();
}
/* "Starting…" only when it lasts: most streams speak before anyone could read it. */
function say() {
  clearTimeout(wordsAt);
  const idle = hooks.goLabel() ? "st.idle" : "st.cold",
    own = player.info.elsewhere
      ? "st.othertab"
      : player.state === "playing" && !player.info.n
        ? "st.sounding"
        : "st." + player.state;
  const write = () =>
    text(q("[role=status]"), t(["cold", "warm"].includes(player.state) ? idle : own, player.info));
  if (player.state === "requesting")
    wordsAt = setTimeout(() => player.state === "requesting" && write(), 150);
  else write();
}
function figures() {
  const m = player.meter,
    set = (k, v, u = "", tone = "") => {
      const e = q(`[data-m=${k}]`),
        s = v == null ? "–" : v + (u ? `<small>${u}</small>` : "");
      if (e.dataset.s !== s) {
        e.dataset.s = s;
        e.innerHTML = s;
      }
      attr(e, "data-tone", tone);
    };
  set("first", m.first, "ms");
  set("rtf", m.rtf?.toFixed(2), "", m.rtf > 1 ? "warn" : "");
  set("buf", m.buf?.toFixed(1), "s");
  set("under", m.under, "", m.under ? "warn" : "");
}
const canContinue = () =>
  ["cancelled", "failed"].includes(player.state) && !!hooks.canContinue(player.job);
const second = () =>
  (canContinue()
    ? "takes.continue"
    : player.state === "failed"
      ? player.canBuiltin() && "bar.builtin"
      : player.waiting
        ? "bar.playnow"
        : ["slow", "playing", "stalled"].includes(player.state) &&
          player.meter.rtf > 1 &&
          !player.whole &&
          "bar.waitmode") || "";

// ---- wave and clock: each frame while it sounds, four times a second where motion is unwelcome
// twenty pictures a second: the head moves a pixel or two in that time, and eight tabs share the
// processor
const FRAME_MS = 45;
let drawnAt = 0,
  pause = 0;
/* However often the player speaks up, one picture per FRAME_MS. */
function tick() {
  if (frame || pause) return;
  const wait = drawnAt + FRAME_MS - performance.now();
  if (wait > 1)
    pause = setTimeout(() => {
      pause = 0;
      frame = requestAnimationFrame(next);
    }, wait);
  else frame = requestAnimationFrame(next);
}
function next() {
  frame = 0;
  if (!root()?.isConnected) return;
  drawnAt = performance.now();
  drawNow();
  if (player.sounding && !hooks.calm()) tick();
}
/* The scale is the predicted length. It moves only when that was wrong: towards the truth, a
   tenth at a time. */
function ease() {
  const want = Math.max(player.target, got()),
    now = performance.now();
  if (
    !player.peaks.length ||
    player.total === want ||
    !(want > player.total || player.whole || player.cut) ||
    now - scaledAt < 60
  )
    return;
  scaledAt = now;
  player.total =
    hooks.calm() || Math.abs(want / player.total - 1) < 0.1
      ? want
      : player.total * (want > player.total ? 1.1 : 0.9);
  if (player.total !== want && !player.sounding) setTimeout(drawNow, 70);
}
function drawNow() {
  const c = q(".kk-canvas");
  if (!c) return;
  ease();
  const at = drag ?? player.position(),
    have = got(),
    whole = Math.max(player.total, have);
  const fixed = player.whole || player.cut;
  text(
    q(".kk-time"),
    have ? `${clock(at)} / ${fixed ? "" : "≈ "}${clock(fixed ? have : whole)}` : ""
  );
  attr(c, "aria-valuemax", have.toFixed(0));
  attr(c, "aria-valuenow", at.toFixed(0));
  attr(c, "aria-valuetext", `${clock(at)} / ${clock(have)}`);
  wave(c.firstElementChild, at, have, Math.max(whole, 0.001));
}
const readColours = () => {
  const css = getComputedStyle(document.body),
    c = n => css.getPropertyValue(n).trim();
  return {
    base: c("--kk-wave-base"),
    on: c("--kk-wave-on"),
    wave: c("--kk-wave"),
    text: c("--kk-text")
  };
};
function wave(cv, at, have, whole) {
  const box = cv.parentElement,
    w = box.clientWidth,
    h = box.clientHeight,
    dpr = Math.min(devicePixelRatio || 1, 2),
    col = (colours ??= readColours());
  const wide = Math.round(w * dpr),
    high = Math.round(h * dpr);
  if (cv.width !== wide || cv.height !== high) {
    cv.width = wide;
    cv.height = high;
  }
  const g = cv.getContext("2d"),
    n = Math.floor(w / STEP);
  g.setTransform(dpr, 0, 0, dpr, 0, 0);
  g.clearRect(0, 0, w, h);
  for (let i = 0; i < n; i++) {
    const x = i * STEP,
      from = (i / n) * whole;
    if (from >= have) {
      g.fillStyle = col.base;
      g.fillRect(x, h / 2 - 1, 3, 2);
      continue;
    }
    let p = 0;
    for (
      let k = Math.floor(from * PEAK_HZ),
        end = Math.max(k + 1, Math.floor(((i + 1) / n) * whole * PEAK_HZ));
      k < end;
      k++
    )
      p = Math.max(p, player.peaks[k] || 0);
    const y = Math.max(2, Math.min(1, p * 1.4) * (h - 6));
    g.fillStyle = from < at ? col.on : col.wave;
    g.beginPath();
    g.roundRect(x, (h - y) / 2, 3, y, 1.5);
    g.fill();
  }
  if (have && at > 0 && at < whole) {
    g.fillStyle = col.text;
    g.fillRect((at / whole) * w - 1, 0, 2, h);
  }
}

// ---- presses ----------------------------------------------------------------------------------
/* The press that unlocked the sound is not also a press on "Stop". */
const unlocked = () => {
  const was = player.output.unlocking;
  player.output.unlocking = false;
  return was;
};
acts.go = () => {
  if (unlocked() || player.state === "locked") return;
  if (player.busy()) player.stop();
  else live.player?.trigger?.("generate");
};
acts.stop = () => player.stop();
acts.toggle = () => {
  if (!unlocked()) player.toggle();
};
acts.second = () => {
  if (canContinue()) hooks.continueTake(player.job);
  else if (player.state === "failed") player.again("builtin");
  else player.wait(!player.waiting);
};
acts.save = () => player.save();
const where = e => {
  const r = q(".kk-canvas").getBoundingClientRect();
  return Math.max(
    0,
    Math.min(got(), ((e.clientX - r.left) / r.width) * Math.max(player.total, got()))
  );
};
document.addEventListener("keydown", e => {
  if (!e.target.matches?.("#kk-player .kk-canvas, .kk-bar .kk-canvas")) return;
  const d = { ArrowLeft: -2, ArrowRight: 2, Home: -1e9, End: 1e9 }[e.key];
  if (d) {
    e.preventDefault();
    player.seek(player.position() + d);
  }
});
document.addEventListener("pointerdown", e => {
  const c = e.target.closest?.(".kk-bar .kk-canvas");
  if (!c || e.button || !player.peaks.length) return;
  c.setPointerCapture(e.pointerId);
  drag = where(e);
  drawNow();
});
document.addEventListener("pointermove", e => {
  if (drag !== null) {
    drag = where(e);
    drawNow();
  }
});
document.addEventListener("pointerup", e => {
  if (drag !== null) {
    const at = where(e);
    drag = null;
    player.seek(at);
    drawNow();
  }
});
document.addEventListener("pointercancel", () => {
  drag = null;
});

document.addEventListener("kk:player", e => root() && paint(e.detail.words));
document.addEventListener("kk:theme", () => {
  colours = null;
  if (root()) drawNow();
});
for (const n of ["kk:lang", "kk:tab"]) document.addEventListener(n, () => root() && paint(true));
document.addEventListener("kk:takes", () => root() && paint(false));
addEventListener("resize", () => root() && drawNow());
