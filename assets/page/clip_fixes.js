// @ts-check
/* What can be done about a clip: another part, other cleaning, the cure of each warning and its way
   back. Python answers with the new draft. */
import { listen } from "./ab_preview.js";
import { acts } from "./acts.js";
import { health } from "./clip_report.js";
import { field } from "./fields.js";
import { draw, live, send } from "./parts.js";
import { recordAnew, recordMore } from "./recorder.js";
import { draft } from "./voice_choice.js";

const { card, data, amountOf: amount } = health;

// ---- changes: Python answers with the new draft -----------------------------------------------
/* Always the whole wish, so that of quick changes the last one is enough. The draft gets a new id
   with each; `clip` stays. */
const change = () => {
  const d = data();
  d.worse = false;
  d.before = d.after = null; // measured again by the studio
  card().pending = true;
  card().wish = (card().wish || 0) + 1;
  send("health", {
    op: "change",
    n: card().wish,
    id: card().sure.id,
    clip: d.clip,
    window: [d.start_s, d.end_s],
    clean: d.clean,
    gain: d.gain,
    varying: !!d.varying
  });
};
const MAX_PART_S = 30; // as no model takes more
/* Another part has other words: the transcript counts again when its tick says that it holds
   them. */
const use = (start_s, end_s) => {
  card().ui.fits = false;
  Object.assign(data(), { start_s, end_s });
  ["health", "title_voice", "fit"].forEach(draw);
  change();
  listen.moved();
};
acts.window = b => {
  const w = data().report.windows[+b.dataset.i];
  use(w.start_s, w.end_s);
};
acts.whole = () => {
  const w = data().report.whole;
  use(w.start_s, w.end_s);
  live.health.root.querySelector("[data-do=playpart]")?.focus();
};
document.addEventListener("input", e => {
  if (!e.target.closest?.("#kk-transcript") || !draft()) return;
  const words = e.target.value.trim();
  // who writes down a whole clip need not say so
  card().ui.fits = !!words && (card().ui.fits || health.isWhole(data()));
  draw("fit");
  const odd = !!health.pace(data());
  // not when the field is left: what is being pressed then would be drawn anew
  if (odd || card().ui.odd) draw("health");
  card().ui.odd = odd;
});
document.addEventListener("input", e => {
  if (!e.target.matches?.("[data-amount]")) return;
  e.target.ariaValueText = e.target.closest("label").querySelector("output").value =
    e.target.value + "%";
});
acts.morewarns = () => {
  card().ui.all = true;
  draw("health");
};
document.addEventListener(
  "toggle",
  e => {
    if (e.target.matches?.(".kk-health details")) card().ui.open = e.target.open;
  },
  true
);
document.addEventListener("change", e => {
  const el = e.target,
    d = draft();
  if (!d) return;
  if (el.matches?.("#kk-useclean")) {
    d.clean = el.checked ? amount(d) / 100 : 0;
    change();
  }
  if (el.matches?.("[data-amount]")) {
    card().ui.amount = el.value / 100;
    listen.amount();
    if (d.clean > 0) {
      d.clean = el.value / 100;
      change();
    }
  }
  if (el.matches?.("#kk-noise")) {
    d.varying = el.value === "varying";
    listen.amount();
    if (d.clean > 0) change();
  }
  if (el.matches?.("[data-edge]")) {
    let a = d.start_s,
      b = d.end_s;
    if (el.dataset.edge === "start") {
      a = Math.min(+el.value, b - 1);
      b = Math.min(b, a + MAX_PART_S);
    } else {
      b = Math.max(+el.value, a + 1);
      a = Math.max(a, b - MAX_PART_S);
    }
    use(Math.max(0, a), Math.min(d.report.duration_s, b));
  }
  if (el.matches?.("#kk-fits")) {
    card().ui.fits = el.checked;
    draw("fit");
  }
});
document.addEventListener("keydown", e => {
  // one whole second with Shift
  if (
    !e.shiftKey ||
    !e.target.matches?.("[data-edge]") ||
    !["ArrowLeft", "ArrowRight"].includes(e.key)
  )
    return;
  e.preventDefault();
  e.target.value = +e.target.value + (e.key === "ArrowRight" ? 1 : -1);
  e.target.dispatchEvent(
    new Event("change", {
      bubbles: true
    })
  );
});

// ---- cures: nothing is changed without a way back ---------------------------------------------
const undoable = (code, before, what) => {
  card().ui.undo = {
    ...card().ui.undo,
    [code]: before
  };
  if (what.window) return use(...what.window);
  Object.assign(data(), what);
  draw("health");
  change();
};
/* The quietest place within 1.5 s inward of an edge: between two words. At least one second must
   remain. */
function gap(d, edge, way) {
  const p = d.report.peaks,
    hz = p.length / d.report.duration_s;
  let best = edge + 0.3 * way,
    low = Infinity;
  for (let s = 0.15; s < Math.min(1.5, d.end_s - d.start_s - 1); s += 1 / hz) {
    const v = p[Math.round((edge + s * way) * hz)] ?? 1;
    if (v < low - 0.02) {
      low = v;
      best = edge + s * way;
    }
  }
  return Math.max(0, Math.min(d.report.duration_s, best));
}
/* Let them hear it; the tick decides. */
const denoise = () => {
  Object.assign(card().ui, {
    open: true,
    ab: "b"
  });
  draw("health");
  live.health.root.querySelector("[data-do=ab][data-v=b]")?.focus();
  listen.play("b");
};
const CURES = {
  echo: () => {
    card().ui.tips = !card().ui.tips;
    draw("health");
  },
  noisy: () => denoise(),
  music: () => denoise(),
  quiet: d =>
    undoable(
      "quiet",
      {
        gain: d.gain
      },
      {
        gain: true
      }
    ),
  cut_start: d =>
    undoable(
      "cut_start",
      {
        window: [d.start_s, d.end_s]
      },
      {
        window: [gap(d, d.start_s, 1), d.end_s]
      }
    ),
  cut_end: d =>
    undoable(
      "cut_end",
      {
        window: [d.start_s, d.end_s]
      },
      {
        window: [d.start_s, gap(d, d.end_s, -1)]
      }
    ),
  too_short: () => recordMore(),
  clipped: () => recordAnew(),
  narrow: () => acts.otherclip(),
  first_track: () => acts.otherclip(),
  no_speech: () => acts.otherclip(),
  speakers: () => acts.window({ dataset: { i: 0 } }),
  too_long: d => {
    const n = d.report.windows.length,
      at = d.report.windows.findIndex(w => Math.abs(w.start_s - d.start_s) < 0.05);
    live.health.root.querySelector(`[data-do=window][data-i="${(at + 1) % n}"]`)?.click();
    live.health.root.querySelector(`[data-do=window][data-i="${(at + 1) % n}"]`)?.focus();
  },
  transcript: () => field("kk-transcript")?.focus(),
  transcript_less: () => field("kk-transcript")?.focus()
};
acts.fix = b => {
  const code = b.dataset.code,
    d = data(),
    before = health.isCleaned(code, d) ? { clean: 0 } : card().ui.undo?.[code];
  if (before) {
    delete card().ui.undo?.[code];
    if (before.window) return use(...before.window);
    Object.assign(d, before);
    draw("health");
    return change();
  }
  CURES[code]?.(d);
};
