// @ts-check
/* The player's machine: what the user asks, what the worker and the ring report, and the one state
   that follows from both. Below it the audio context it owns. Draws nothing: it says "kk:player" on
   the document. Sound never passes through here. */
import { facts, studioUrl } from "../page/facts.js";
import { field, setField } from "../page/fields.js";
import { live } from "../page/parts.js";
import { lang, t } from "../page/strings.js";
import { clock } from "../page/text.js";
import { hooks } from "./hooks.js";

const base = `${studioUrl()}/tts/static/${facts.version}/player/`;
const worker = new Worker(base + "transport.js", { type: "module" });
/** @type {Record<string, any>} */
export const player = {
  state: "cold",
  info: {},
  peaks: [],
  total: 0,
  target: 0,
  played: 0,
  meter: {},
  notes: [],
  job: null,
  url: null,
  whole: false,
  cut: false,
  via: "ws",
  limits: {},
  token: "",
  sounding: false,
  counters: {
    played: 0,
    queued: 0,
    peakQueue: 0,
    underruns: 0,
    missing: 0,
    rendered: 0,
    ctxTime: 0,
    outputLatency: 0,
    firstRenderedMs: null,
    firstAudibleMs: null,
    firstHeardMs: null
  }
};
const LIVE = [
  "queued",
  "priming",
  "playing",
  "stalled",
  "slow",
  "paused",
  "locked",
  "draining",
  "reconnect",
  "restarting"
];
player.busy = () => player.state === "requesting" || LIVE.includes(player.state);

let F = { phase: "idle" }; // the facts of the current stream; the state is derived from them
let seq = 0,
  turn = 0,
  tick = 0;
const out = (player.output = makeOutput({
  base,
  worker,
  onState: update,
  onRing: m => {
    if (m.turn === turn) ringSays[m.ev]?.(m);
  }
}));
out.locked = () => player.state === "locked";
out.idle = () => F.phase !== "live" && !player.sounding;

/* What the page itself wants said in the bar (no text, no voice, too long; "cold" takes it back).
   A running stream is not talked over. */
player.show = (state, info = {}) => {
  if (F.phase !== "live") {
    F.phase = state === "cold" ? "idle" : state;
    F.info = info;
  }
  update();
};
function update() {
  const sounding = F.phase !== "idle" && F.moving && !F.paused && !F.drained && out.running();
  if (sounding && !player.sounding) player.silenceOthers();
  player.sounding = !!sounding;
  player.waiting = !!F.lead;
  const [state, info] = derive(),
    words = state !== player.state || JSON.stringify(info) !== JSON.stringify(player.info);
  player.state = state;
  player.info = info;
  document.dispatchEvent(new CustomEvent("kk:player", { detail: { words } }));
  if (player.busy() || player.sounding)
    tick ||= setInterval(() => {
      out.watch(F.moving && !F.paused);
      update();
    }, 250);
  else {
    clearInterval(tick);
    tick = 0;
  }
}

function derive() {
  if (F.phase === "idle") return [out.running() ? "warm" : "cold", {}];
  if (F.phase !== "live") return [F.phase, F.info];
  if (!F.data)
    return F.broken
      ? broken()
      : F.begun
        ? ["priming", {}]
        : F.queued
          ? ["queued", F.queued]
          : ["requesting", {}];
  if (out.blocked()) return ["locked", {}];
  if (F.paused) return ["paused", { elsewhere: !!F.elsewhere }];
  if (F.broken) return broken();
  const late = F.rtf > 1.02 && !F.ended && (F.lead || !F.started || F.stalled);
  if (late) return ["slow", { x: F.rtf.toFixed(1), s: Math.ceil(F.lead?.need_s ?? F.rebuffer_s) }];
  if (!F.started) return ["priming", {}];
  if (F.stalled) return ["stalled", {}];
  if (F.ended) return ["draining", {}];
  return ["playing", sentence()];
}
const sentenceOf = k => F.spans[k]?.[0] ?? k + 1; // the first one of what is spoken in one go
const broken = () =>
  F.broken === "engine"
    ? ["restarting", { n: sentenceOf(F.marks.at(-1)?.sentence ?? 0) }]
    : ["reconnect", {}];
function sentence() {
  const at = player.position() * F.rate;
  let k = 0;
  for (const m of F.marks) if (m.from <= at) k = m.sentence;
  // what is spoken in one go may be a part of a sentence, or several
  const [first, last] = F.spans[Math.min(k, F.spans.length - 1)] ?? [];
  return {
    i: first === last ? first : `${first}–${last}`,
    n: F.spans.at(-1)?.[1],
    t: F.sentences[k] ?? F.text
  };
}

// ---- what the user asks -----------------------------------------------------------------------
/* params: the fields of /v1/audio/speech (the page's own names for them are understood too).
   Refuses only what has no text or no voice. at_s: of a take that goes on, where its listener
   was; it is played from there or from where it goes on, whichever comes first. */
player.start = (/** @type {Record<string, any>} */ params = {}, at_s = null) => {
  const { text, instruct, hop, random, ...body } = params;
  body.input ??= text ?? "";
  body.instructions ??= instruct ?? "";
  body.profile ??= hop ?? "fast";
  body.voice ??= hooks.voiceId() ?? "";
  body.speed = Number(body.speed ?? 1);
  body.consent = !!body.consent;
  body.seed =
    random || body.seed == null || body.seed === "" || !Number.isFinite(Number(body.seed))
      ? -1
      : Number(body.seed);
  if (!body.input.trim()) {
    player.show("notext");
    field("kk-text")?.focus();
  } else if (!body.voice) player.show("novoice");
  else begin(body, at_s);
};
function begin(body, at_s = null) {
  const now = performance.now(),
    zero = now - out.gestureAt < 250 ? out.gestureAt : now;
  hooks.stopPreview();
  out.post({ op: "cancel", turn }); // the old voice first, then the new one
  const guess = hooks.expected(body);
  worker.postMessage({
    op: "start",
    seq: ++seq,
    turn: ++turn,
    params: body,
    predicted_s: guess,
    at_s
  });
  F = {
    phase: "live",
    seq,
    zero,
    body,
    text: body.input,
    marks: [],
    sentences: [],
    spans: [],
    rate: 24000,
    received: 0,
    rebuffer_s: 0.3,
    at: 0,
    time: 0
  };
  Object.assign(player, {
    peaks: [],
    played: 0,
    total: guess,
    target: guess,
    job: null,
    url: null,
    whole: false,
    cut: false,
    meter: {},
    notes: []
  });
  Object.assign(player.counters, {
    played: 0,
    queued: 0,
    peakQueue: 0,
    underruns: 0,
    missing: 0,
    rendered: 0,
    firstRenderedMs: null,
    firstAudibleMs: null,
    firstHeardMs: null
  });
  if (out.ctx && out.ctx.state === "suspended") out.ctx.resume();
  update();
}
player.again = model => F.body && begin({ ...F.body, model });
player.stop = () => {
  if (F.phase !== "live") return player.pause(true);
  out.post({ op: "cancel", turn });
  worker.postMessage({ op: "cancel", seq });
  finish("cancelled", { s: player.kept() });
};
player.kept = () => clock(F.received / F.rate || 0);
player.pause = (on = true) => {
  if (!F.seq || !!F.paused === on || F.drained) return;
  settle();
  F.paused = on;
  F.elsewhere = false;
  out.post({ op: "pause", on });
  if (!on) hooks.stopPreview();
  update();
};
/* One tab sounds at a time: the others of this studio pause, and say why. */
const tabs = new BroadcastChannel(`kk ${studioUrl()}`);
player.silenceOthers = () => tabs.postMessage("sound");
tabs.onmessage = () => {
  hooks.stopPreview();
  if ((!player.sounding && !player.busy()) || F.paused) return;
  player.pause(true);
  F.elsewhere = true;
  update();
};
player.toggle = () => {
  if (!F.received) return;
  const over = F.phase !== "live" && (F.drained || !F.moving);
  if (over) player.seek(player.played >= F.received / F.rate - 0.05 ? 0 : player.played, true);
  else player.pause(!F.paused);
};
player.seek = (at_s, play = false) => {
  if (!F.received) return;
  const at = Math.max(0, Math.min(F.received / F.rate, at_s)),
    rest = F.drained || (F.phase !== "live" && !F.moving);
  player.played = at;
  F.at = at;
  F.time = out.ctx?.currentTime ?? 0;
  if (rest && !play) {
    F.drained = true;
    return update();
  } // only the head moves; play goes on from there
  F.drained = false;
  F.moving = false;
  worker.postMessage({ op: "seek", turn: ++turn, at_s: at });
  if (rest) {
    F.paused = false;
    out.post({ op: "pause", on: false });
    hooks.stopPreview();
  }
  update();
};
player.canBuiltin = () =>
  !!F.body &&
  F.engine !== "builtin" &&
  F.body.model !== "builtin" &&
  ["notready", "stalled", "fault"].includes(F.info?.code);
player.wait = on => worker.postMessage({ op: "wait", on });
player.save = () => {
  // in the format that the page's menu names
  if (player.url) return (hooks.saveAs || player.download)(player.url);
  if (F.received) worker.postMessage({ op: "save", label: t("takes.label") });
};
player.download = (url, name = "") => {
  const a = Object.assign(document.createElement("a"), { href: url, download: name });
  document.body.append(a);
  a.click();
  a.remove();
};

/* Where the ring is now, seconds, at the loudspeaker: its last word plus the context's clock,
   less the device's delay. */
player.position = () => {
  if (!player.sounding) return F.at ?? 0;
  const late = out.ctx.outputLatency || 0,
    run = out.ctx.currentTime - F.time - late;
  return (player.played = Math.max(F.floor ?? 0, Math.min(F.received / F.rate, F.at + run)));
};
function settle() {
  F.at = F.floor = player.position();
  F.time = out.ctx?.currentTime ?? 0;
  player.played = F.at;
}

function finish(phase, info) {
  F.phase = phase;
  F.info = info;
  F.moving = phase === "failed" && F.moving;
  F.ended = true;
  if (phase === "cancelled") {
    F.at = player.played;
    F.drained = true;
  }
  if (phase !== "done") {
    player.cut = true;
    player.target = F.received / F.rate;
  } // nothing comes any more: this is its length
  if (!F.reported && F.job && phase === "failed") tell(phase);
  update();
}
function done() {
  finish("done", { s: player.kept(), w: F.wall_s.toFixed(1) });
  tell("done");
}
/* The take list wants it once per stream: when the last sample has come and the first was heard,
   so both figures are true. */
function tell(state) {
  if (F.reported || !F.job) return;
  F.reported = true;
  live?.player?.trigger?.("done", {
    job: F.job,
    first: player.meter.first ?? null,
    rtf: player.meter.rtf ?? null,
    gaps: player.counters.underruns,
    state
  });
}

// ---- what the worker reports ------------------------------------------------------------------
const workerSays = {
  session: m => {
    player.token = m.token;
    player.limits = m.limits ?? {};
    document.dispatchEvent(new CustomEvent("kk:session", { detail: m }));
  },
  limits: m => {
    player.limits = m.limits ?? player.limits;
  },
  link: m => {
    player.via = m.via;
    player.linked = true;
    document.dispatchEvent(new CustomEvent("kk:link", { detail: m }));
  },
  engine: () => {
    document.dispatchEvent(new CustomEvent("kk:enginechange"));
  },
  queued: m => {
    if (F.queuedAt && performance.now() - F.queuedAt < 1000 && F.queued.n === m.position) return;
    F.queuedAt = performance.now();
    F.queued = { n: m.position, s: Math.ceil(m.eta_s ?? 0) };
  },
  begin: m => {
    Object.assign(F, {
      begun: true,
      broken: false,
      job: m.job,
      rate: m.rate,
      rtf: m.rtf,
      sentences: m.sentences ?? [],
      spans: m.spans ?? [],
      seed: m.seed,
      engine: m.engine
    });
    player.notes = m.notes ?? []; // what the engine cannot do of this request
    player.job = m.job;
    player.meter.rtf = m.rtf || null;
    out.rate = m.rate;
    F.at = F.floor = player.played = m.seat_s || 0;
    if (m.predicted_s)
      player.total = player.target =
        F.body.mode === "convert" ? m.predicted_s : hooks.paced(m.predicted_s, F.body.voice);
  },
  resumed: m => {
    F.broken = false;
    player.job = F.job = m.job;
    player.notes = m.notes ?? player.notes;
  },
  broken: m => {
    F.broken = m.engine ? "engine" : "link";
  },
  takes: () => hooks.reloadTakes(),
  peaks: m => {
    F.data ||= m.received > 0;
    F.received = m.received;
    F.rate = m.rate;
    F.rtf = player.meter.rtf = m.rtf || null;
    player.peaks.push(...m.list);
    player.target = Math.max(player.target, m.received / m.rate);
  },
  info: m => {
    F.marks.push(m);
  },
  lead: m => {
    F.lead = m.on ? m : null;
  },
  end: m => {
    F.ended = player.whole = true;
    F.lead = null;
    // null: it could not be kept; a link's guest has none
    player.url = m.url === null || facts.link ? null : `${studioUrl()}/tts/result/${F.job}.wav`;
    player.meter.rtf = m.rtf ?? player.meter.rtf;
    F.wall_s = m.wall_s ?? (performance.now() - F.zero) / 1000;
    player.target = F.received / F.rate;
    const seed = m.seed ?? F.seed;
    if (seed !== undefined && seed !== "") setField("kk-seed", String(seed));
    if (F.drained) done();
    else if (player.meter.first != null || !out.running()) tell("done");
  },
  error: m =>
    finish("failed", {
      why: m.text || t(m.key || "err.fault"),
      code: m.code || m.key || "",
      retry: m.retry
    }),
  stopped: m => {
    F.received = m.received;
    player.target = F.received / F.rate;
    F.info = { s: player.kept() };
  },
  wav: m => {
    const url = URL.createObjectURL(new Blob([m.wav], { type: "audio/wav" }));
    player.download(url, player.fileName());
    setTimeout(() => URL.revokeObjectURL(url), 60e3);
  }
};
player.fileName = () =>
  `${
    (F.text ?? "")
      .trim()
      .slice(0, 12)
      .replace(/[^\p{L}\p{N}]+/gu, "-") || "kaikou"
  }.wav`;
worker.onmessage = ({ data: m }) => {
  if (m.ev === "cancelled") {
    if (m.seq === F.seq) tell("cancelled");
    return;
  }
  if (m.seq && m.seq !== F.seq) return;
  workerSays[m.ev]?.(m);
  update();
};

// ---- what the ring reports --------------------------------------------------------------------
const mark = m => {
  F.at = m.pos / out.ctx.sampleRate;
  F.floor = F.at;
  F.time = m.time;
};
const ringSays = {
  first: m => {
    mark(m);
    F.started = F.moving = true;
    player.counters.firstRenderedMs = out.when(m.wall) - F.zero;
    player.counters.firstHeardMs = out.heardAt(m.frame) - F.zero;
    player.meter.first = Math.max(1, Math.round(player.counters.firstRenderedMs));
    if (F.ended) tell("done");
    update();
  },
  audible: m => {
    player.counters.firstAudibleMs ??= out.when(m.wall) - F.zero;
  },
  go: m => {
    mark(m);
    F.started = F.moving = true;
    F.stalled = false;
    update();
  },
  stall: m => {
    mark(m);
    F.stalled = true;
    F.moving = false;
    F.rebuffer_s = Math.min(2, 0.3 * 2 ** (m.underruns - (F.rtf > 1.02 ? 0 : 1)));
    player.counters.underruns = m.underruns;
    update();
  },
  drained: m => {
    mark(m);
    player.played = F.at;
    F.drained = true;
    F.moving = false;
    if (F.phase === "live" && F.ended) done();
    else update();
  },
  cut: m => {
    F.at = player.played = m.pos / out.ctx.sampleRate;
  },
  counters: m => {
    const { ev, turn: _, state, ...c } = m;
    Object.assign(player.counters, c, { outputLatency: out.ctx?.outputLatency ?? 0 });
    if (!F.seq) return;
    player.meter.under = c.underruns;
    player.meter.buf = Math.max(0, F.received / F.rate - c.played / out.ctx.sampleRate);
    if (m.moving) {
      F.at = c.played / out.ctx.sampleRate;
      F.time = c.ctxTime;
    }
  }
};

document.addEventListener("visibilitychange", () =>
  worker.postMessage({ op: "hidden", on: document.hidden })
);
document.addEventListener("kk:lang", () => worker.postMessage({ op: "locale", locale: lang }));
worker.postMessage({
  op: "open",
  root: studioUrl(),
  locale: lang,
  age_ms: performance.now(),
  mobile: matchMedia("(pointer: coarse)").matches,
  hidden: document.hidden,
  via: new URLSearchParams(location.search).get("transport") === "fetch" ? "fetch" : "ws"
});
/* The first context of a browser starts its audio service and blocks for 40-130 ms. Asking for
   the devices starts that service too, and without anyone waiting; then the context is made, and
   the first gesture only resumes it. */
const wake = async () => {
  await navigator.mediaDevices?.enumerateDevices?.().catch(() => {});
  out.ahead();
};
(window.requestIdleCallback || (f => setTimeout(f, 200)))(wake);

/* ---- the browser's audio context
   --------------------------------------------------------------------------- Made and resumed
   inside a gesture, watched, rebuilt. Joins the ring to the worker and steps aside. Blind to
   streams. */
function makeOutput({ base, worker, onState, onRing }) {
  const O = { ctx: null, node: null, rate: 24000, stuck: false, gestureAt: 0, unlocking: false };
  // keys that unlock nothing
  const QUIET = ["Shift", "Control", "Alt", "Meta", "Escape", "CapsLock", "Tab"];
  let still = 0,
    lastTime = -1,
    asked = 0;

  O.running = () => !!O.ctx && O.ctx.state === "running" && !O.stuck;
  // interrupted (a phone call) passes by itself
  O.blocked = () => !O.ctx || O.stuck || ["suspended", "closed"].includes(O.ctx.state);
  O.post = m => O.node?.port.postMessage(m);

  /* A context may be made ahead, suspended, with the ring already loaded; what must run
     synchronously inside a gesture is its first resume(): one that is asked for earlier does not
     complete by itself. */
  function build(inGesture = true) {
    close();
    asked = O.rate;
    try {
      O.ctx = new AudioContext({ sampleRate: O.rate, latencyHint: "interactive" });
    } catch {
      O.ctx = new AudioContext({ latencyHint: "interactive" });
    } // the worker resamples
    const ctx = O.ctx;
    if (inGesture) ctx.resume();
    if (navigator.audioSession) navigator.audioSession.type = "playback";
    ctx.onstatechange = () => {
      if (ctx === O.ctx && ctx.state !== "interrupted") onState();
    };
    ctx.audioWorklet.addModule(base + "worklet.js").then(
      () => {
        if (ctx !== O.ctx) return;
        const node = (O.node = new AudioWorkletNode(ctx, "kk-ring", {
            numberOfInputs: 0,
            outputChannelCount: [1]
          })),
          { port1, port2 } = new MessageChannel();
        node.port.onmessage = e => onRing(e.data);
        node.port.postMessage({ op: "feed", port: port1 }, [port1]);
        worker.postMessage({ op: "port", port: port2, rate: ctx.sampleRate }, [port2]);
        node.connect(ctx.destination);
        onState();
      },
      e => {
        console.error("kk-ring", e.message);
        O.stuck = true;
        onState();
      }
    );
    onState();
  }
  O.ahead = () => {
    if (!O.ctx) build(false);
  };
  function close() {
    const old = O.ctx;
    O.ctx = O.node = null;
    O.stuck = false;
    lastTime = -1;
    if (old && old.state !== "closed") old.close();
  }

  function gesture(e) {
    if (!e.isTrusted || (e.type === "keydown" && QUIET.includes(e.key))) return;
    if (e.type !== "pointerdown") O.gestureAt = e.timeStamp; // time zero of the first sound
    // the click that follows this press is part of it
    if (e.type !== "click" || e.detail === 0) O.unlocking = O.locked?.() ?? false;
    if (!O.ctx || O.stuck || (O.idle?.() && O.ctx.sampleRate !== O.rate && asked !== O.rate))
      build();
    else if (O.ctx.state !== "running") O.ctx.resume();
  }
  for (const kind of ["pointerdown", "keydown", "click"])
    document.addEventListener(kind, gesture, { capture: true, passive: true });

  /* Called four times a second while there is something to play: a context that says running but
     whose clock stands is dead. */
  O.watch = playing => {
    const t = O.ctx?.currentTime ?? -1;
    still = playing && O.ctx?.state === "running" && t === lastTime ? still + 1 : 0;
    lastTime = t;
    if (still < 4) return;
    still = 0;
    close();
    O.stuck = true;
    // the next gesture builds a new one at the same place
    worker.postMessage({ op: "port", port: null, rate: 24000 });
    onState();
  };

  /* The ring's wall clock -> performance.now() of this page, ms. Whole milliseconds: half of one
     is the fairest guess. */
  O.when = wall => wall + 0.5 - performance.timeOrigin;
  /* When a frame of the context is heard, in performance.now() ms; null where the browser does
     not say. */
  O.heardAt = frame => {
    const s = O.ctx?.getOutputTimestamp?.();
    return s?.performanceTime
      ? s.performanceTime + (frame / O.ctx.sampleRate - s.contextTime) * 1000
      : null;
  };
  return O;
}
