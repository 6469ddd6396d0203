// @ts-check
/* The engine worker: socket (or fetch), framing, credit, holes and resuming; keeps the take and
   feeds the ring from it. The page is not in this path: a blocked main thread costs no sound. Blind
   to the DOM and to words; errors of its own are keys. */
import { Samples } from "./sample_buffer.js";

const MAGIC = 0x4b01,
  VERSION = 1;
const RING_SAMPLES = 1 << 20,
  AHEAD_S = 20,
  WAIT_S = 120; // what the ring can hold, what is put into it, and the longest "play when ready"
const BACK = ["engine_lost", "device_fault", "stalled", "notready"],
  BACK_MS = 120e3,
  MAX_LOSSES = 3; // an engine that comes back, and how long and how often it is waited for
const OPEN_MS = 1500,
  RETRY_MS = [100, 250, 500, 1000, 2000, 4000, 8000, 15000];
let home = null; // what the page said when it opened us
let via = "ws",
  ws = null,
  ready = false,
  token = "",
  renew_at = 0,
  failures = 0,
  tries = 0,
  retry = 0;
let ring = null,
  ringRate = 24000;
let take = null; // the current stream and its samples
let lateness = [],
  jitter_s = 0.06,
  seen_rtf = 0; // learned on this page: lateness, and the pace the last stream really came at

const say = (ev, more, transfer) =>
  postMessage({ ev, seq: take?.seq ?? 0, ...more }, transfer ?? []);
const send = m => {
  if (ready) ws.send(JSON.stringify(m));
};

// ---- the link -----------------------------------------------------------------------------------
async function open(m) {
  home = m;
  via = m.via || "ws";
  await session();
  if (via === "ws") {
    connect();
    setTimeout(
      () => {
        if (!ready) fallBack();
      },
      Math.max(0, OPEN_MS - m.age_ms)
    );
  } else say("link", { via });
}
async function session() {
  try {
    const r = await fetch(home.root + "/tts/session", {
        method: "POST",
        credentials: "same-origin"
      }),
      body = await r.json();
    if (!r.ok) throw new Error(body.error?.message || r.status);
    token = body.token;
    // half its life: the clock of another machine may be wrong, but not its length
    renew_at = Date.now() + 500 * (body.token_s || 0);
    say("session", {
      token,
      limits: body.limits,
      version: body.version,
      can_log_out: !!body.can_log_out
    });
  } catch {
    failures++;
  } // without a token the socket is refused, and that is told
}
function fallBack() {
  // a stream that has begun is resumed over the socket it knows
  if (via === "fetch" || take?.job) return;
  via = "fetch";
  clearTimeout(retry);
  say("link", { via });
  if (take?.waiting) begin();
}
function connect() {
  const s = (ws = new WebSocket(home.root.replace(/^http/, "ws") + "/tts/ws"));
  s.binaryType = "arraybuffer";
  s.onopen = () =>
    s.send(JSON.stringify({ op: "hello", v: VERSION, token, locale: home.locale, engine: true }));
  s.onmessage = e => {
    if (s !== ws) return;
    if (typeof e.data === "string") onText(JSON.parse(e.data));
    else onFrame(e.data);
  };
  s.onclose = () => {
    if (s === ws) dropped();
  };
}
function dropped() {
  const live = take && !take.over && !take.abort,
    broke = ready ? live : true; // a quiet close of an idle socket is no error
  // the studio itself may be gone: whoever shows its state asks
  if (ready) postMessage({ ev: "engine" });
  ready = false;
  ws = null;
  if (broke && ++failures >= 2) fallBack();
  if (via === "fetch") return;
  if (live) {
    if (tries >= RETRY_MS.length) return fail("err.net");
    take.waiting = true;
    say("broken", {});
  }
  retry = setTimeout(
    tries || Date.now() > renew_at ? () => session().then(connect) : connect,
    RETRY_MS[Math.min(tries++, RETRY_MS.length - 1)]
  ); // a restarted server wants a new token
}
function lose() {
  const s = ws;
  ws = null;
  s?.close();
  dropped();
} // give up a socket that left something out
function onReady() {
  if (tries) postMessage({ ev: "engine" }); // it is back, or another one is
  ready = true;
  tries = 0;
  via = "ws"; // one that opened late serves what comes from now on
  say("link", { via });
  if (take?.waiting) begin();
}

// ---- one stream ---------------------------------------------------------------------------------
function start(m) {
  if (take && !take.over) drop();
  take = {
    seq: m.seq,
    turn: m.turn,
    params: m.params,
    samples: null,
    job: "",
    granted: 0,
    rtf: m.rtf ?? 0,
    predicted_s: m.predicted_s || 0,
    at_s: m.at_s ?? null,
    given: 0,
    lost_at: 0,
    losses: 0,
    over: false,
    ended: false,
    waiting: false,
    wait: false,
    played: 0,
    fed: 0,
    told: false,
    from: 0,
    keep: false,
    chunk: 0.2,
    last: 0,
    zero: 0,
    came_s: 0,
    live: 0,
    held: false
  };
  if (via === "fetch" || ready) begin();
  else {
    take.waiting = true;
    if (!ws && home) {
      clearTimeout(retry);
      connect();
    }
  }
}
function begin() {
  take.waiting = false;
  if (via === "fetch") return fetchStream(take);
  const rate = take.samples?.rate || 24000;
  take.granted = Math.max(take.granted, Math.ceil(take.played) + Math.round(lead_s() * rate));
  const resume = take.job ? { job: take.job, from: take.samples?.length ?? 0 } : {};
  send({
    op: "start",
    seq: take.seq,
    params: take.params,
    rate: 24000,
    credit: take.granted,
    ...resume
  });
}
function drop() {
  // the listener is done with this stream; its samples stay
  take.over = true;
  if (take.abort) {
    take.abort.abort();
    if (take.job) {
      const { seq, job } = take;
      fetch(`${home.root}/tts/cancel/${job}`, { method: "POST", keepalive: true })
        .catch(() => {})
        .then(() => postMessage({ ev: "cancelled", seq }));
    }
  } else send({ op: "cancel", seq: take.seq });
}
const lead_s = () =>
  Math.max(
    home?.hidden ? 30 : home?.mobile ? 5 : 15,
    take?.wait ? Math.min(need_s() + 1, WAIT_S) : 0
  );

function onText(m) {
  if (m.op === "ready") {
    say("limits", { limits: m.limits });
    return onReady();
  }
  if (m.op === "takes") return postMessage({ ev: "takes" }); // the visitor's list has changed
  if (m.op === "engine") return postMessage({ ev: "engine" }); // its state is another
  // may be of an older stream
  if (m.op === "cancelled") return postMessage({ ev: "cancelled", seq: m.seq });
  if (!take || m.seq !== take.seq) return;
  // the end crossed our cancel
  if (take.over) return m.op === "end" ? postMessage({ ev: "cancelled", seq: m.seq }) : undefined;
  if (m.op === "queued") say("queued", m);
  else if (m.op === "begin") begun(m);
  else if (m.op === "info") {
    take.rtf = m.rtf || take.rtf;
    pace();
    say("info", m);
  } else if (m.op === "end") end(m);
  else if (m.op === "error" && !comesBack(m)) fail("", m);
}
/* The engine was lost in mid-stream and is being restarted: the stream is asked for again when the
   studio says that it may be back. What is there plays on meanwhile, and the rest begins with the
   sentence that broke. */
function comesBack(m) {
  if (!take.samples?.length || !BACK.includes(m.code)) return false;
  if (!take.lost_at && ++take.losses > MAX_LOSSES) return false;
  take.lost_at ||= performance.now();
  if (performance.now() - take.lost_at > BACK_MS) return false;
  take.waiting = true;
  say("broken", { engine: true });
  setTimeout(
    t => {
      if (t === take && t.waiting && !t.over && ready) begin();
    },
    1000 * Math.min(Math.max(m.retry || 1, 1), 5),
    take
  );
  return true;
}
function begun(m) {
  const again = !!take.job;
  take.job = m.job;
  take.rtf = m.rtf || take.rtf;
  take.predicted_s = m.predicted_s || take.predicted_s;
  take.samples ??= new Samples(m.rate);
  take.lost_at = 0;
  if (again) return say("resumed", m);
  take.given = m.at || 0; // of a take that goes on: the sound that was made before
  take.played = Math.min(
    take.given,
    take.at_s === null ? Infinity : Math.round(take.at_s * m.rate)
  );
  seat(take.turn, take.played, false);
  say("begin", { ...m, seat_s: take.played / m.rate });
  raise();
}
function onFrame(buf) {
  const v = new DataView(buf);
  if (buf.byteLength < 16 || v.getUint16(0, true) !== MAGIC) return;
  if (!take?.samples || take.over || v.getUint32(4, true) !== take.seq) return;
  const at = Number(v.getBigUint64(8, true)),
    have = take.samples.length,
    pcm = new Int16Array(buf, 16, (buf.byteLength - 16) >> 1);
  if (at > have) {
    say("hole", { missing: at - have });
    return lose();
  } // the new socket resumes at `have`
  // nothing comes after this frame: the ring may play to the last sample
  if (v.getUint16(2, true) & 1) take.ended = true;
  if (at + pcm.length > have) push(at < have ? pcm.subarray(have - at) : pcm);
  else feed();
}
function push(pcm) {
  const now = performance.now(),
    s = take.samples,
    len_s = pcm.length / s.rate;
  s.append(pcm);
  feed();
  if (s.length > take.given) clock(now, len_s);
  take.chunk = Math.max(take.chunk, Math.min(len_s, 0.5));
  pace();
  sharePeaks(false);
}
/* The pace of arrival. What came slowly because we held it back (credit) or the server did
   (fallback, 10 s ahead) teaches nothing. */
function clock(now, len_s) {
  const t = take,
    had_s = t.samples.length / t.samples.rate - len_s;
  if (!t.last) t.zero = now;
  else {
    const late_s = (now - t.last) / 1000 - len_s * Math.max(pace_rtf(), 0.01);
    t.held ||= t.abort
      ? had_s - (now - t.zero) / 1000 > 8
      : t.granted - t.samples.length < t.samples.rate;
    t.came_s += len_s;
    if (!t.held) {
      learn(late_s);
      if (t.came_s > 0.3) t.live = (now - t.zero) / 1000 / t.came_s;
      if (t.came_s > 2) seen_rtf = t.live;
    }
  }
  t.last = now;
}
const pace_rtf = () => Math.max(take.rtf, take.held ? 0 : take.live || seen_rtf);
function learn(late_s) {
  // J: twice the 95th percentile of lateness, 60 to 400 ms
  lateness.push(Math.max(0, late_s));
  if (lateness.length > 200) lateness.shift();
  if (lateness.length >= 20)
    jitter_s = Math.min(
      0.4,
      Math.max(0.06, 2 * [...lateness].sort((a, b) => a - b)[Math.floor(lateness.length * 0.95)])
    );
}
function sharePeaks(whole) {
  const list = take.samples.peaks(whole);
  if (list.length || whole)
    say("peaks", { list, received: take.samples.length, rate: take.samples.rate, rtf: pace_rtf() });
}
function end(m) {
  if (take.samples && m.samples > take.samples.length) return lose(); // the tail is missing: resume
  take.over = take.ended = true;
  if (take.samples) {
    feed();
    pace();
    sharePeaks(true);
  }
  say("end", m);
}
function fail(key, m = {}) {
  take.over = take.ended = true;
  take.waiting = false;
  if (take.samples) {
    feed();
    sharePeaks(true);
  } // what came is still played
  say("error", { key, text: m.text || "", code: m.code || "", retry: m.retry ?? null });
}

// ---- fallback: the same stream as a plain response ----------------------------------------------
async function fetchStream(t) {
  t.abort = new AbortController();
  const mine = () => t === take && !t.over;
  try {
    const r = await fetch(home.root + "/v1/audio/speech", {
      method: "POST",
      credentials: "same-origin",
      signal: t.abort.signal,
      headers: { "Content-Type": "application/json", "Accept-Language": home.locale },
      body: JSON.stringify({ ...t.params, response_format: "pcm" })
    });
    if (!mine()) return;
    if (!r.ok) {
      const e = (await r.json().catch(() => ({}))).error || {};
      return (
        mine() &&
        fail(e.message ? "" : "err.net", {
          text: e.message,
          code: e.code,
          retry: Number(r.headers.get("Retry-After")) || null
        })
      );
    }
    const head = n => r.headers.get(n) || "",
      rate = Number(/rate=(\d+)/.exec(head("X-Audio-Format"))?.[1]) || 24000;
    begun({
      job: head("X-Job-Id"),
      rate,
      seed: head("X-Seed"),
      engine: head("X-Engine"),
      voice: head("X-Voice"),
      rtf: Number(head("X-RTF")) || 0.5,
      sentences: [],
      predicted_s: 0,
      notes: notesOf(head("X-Notes"))
    });
    const reader = r.body.getReader();
    let odd = null;
    for (;;) {
      const { done, value } = await reader.read();
      if (!mine()) return;
      if (done) break;
      const lead = odd === null ? 0 : 1,
        all = new Uint8Array((value.length + lead + 1) & ~1),
        n = value.length + lead;
      if (lead) all[0] = odd;
      all.set(value, lead);
      odd = n & 1 ? all[n - 1] : null; // half a sample waits for its other half
      if (n > 1) push(new Int16Array(all.buffer, 0, n >> 1));
    }
    end({ op: "end", job: t.job, samples: t.samples.length });
  } catch (e) {
    if (mine() && e.name !== "AbortError") fail(t.job ? "err.cut" : "err.net");
  }
}
function notesOf(text) {
  // a proxy may have cut the header: sound matters more
  try {
    return JSON.parse(decodeURIComponent(text || "[]"));
  } catch {
    return [];
  }
}

// ---- the ring -----------------------------------------------------------------------------------
function seat(turn, at, keep) {
  // begin feeding at stream sample `at`
  take.turn = turn;
  take.told = false;
  take.keep = keep;
  take.fed = Math.round((at * ringRate) / take.samples.rate);
  take.pos = take.fed;
  ring?.postMessage({ op: "start", turn, at: take.fed, keep, ...tempo() });
  feed();
}
function feed() {
  if (!ring || !take?.samples) return;
  const have = take.samples.at(ringRate, take.ended),
    ahead = Math.min(AHEAD_S * ringRate, RING_SAMPLES - ringRate);
  for (
    let n;
    (n = Math.min(have - take.fed, take.pos + ahead - take.fed, ringRate / 4)) > 0;
    take.fed += n
  ) {
    const pcm = take.samples.floats(take.fed, n, ringRate);
    ring.postMessage({ op: "data", turn: take.turn, pcm }, [pcm.buffer]);
  }
  if (take.ended && take.fed >= have && !take.told) {
    take.told = true;
    ring.postMessage({ op: "end", turn: take.turn });
  }
}
function onReport([turn, pos]) {
  if (!take?.samples || turn !== take.turn) return;
  take.pos = pos;
  take.played = Math.floor((pos * take.samples.rate) / ringRate);
  feed();
  raise();
}
function raise() {
  if (!take?.samples || take.over || take.abort) return;
  const upto = take.played + Math.round(lead_s() * take.samples.rate);
  if (upto - take.granted >= take.samples.rate / 2) {
    take.granted = upto;
    send({ op: "credit", seq: take.seq, upto });
  }
}

/* When to start and whether to hold. Fast engine: one quantum. Else a chunk's making plus what
   lateness taught. "Play when ready": what the whole rest needs. */
const remaining_s = () =>
  Math.max(take.predicted_s, take.samples.length / take.samples.rate + 0.5) -
  take.played / take.samples.rate;
const need_s = () => (take?.samples && pace_rtf() > 1 ? remaining_s() * (1 - 1 / pace_rtf()) : 0);
const tempo = () => ({
  need: pace_rtf() < 0.7 ? 128 : Math.round((take.chunk * pace_rtf() + jitter_s) * ringRate),
  slow: pace_rtf() > 1.02,
  hold: take.wait && !take.ended
});
function pace() {
  if (!take?.samples) return;
  if (take.wait) {
    const have = (take.samples.length - take.played) / take.samples.rate,
      need = Math.min(need_s(), WAIT_S - 1);
    if (have >= need || take.ended) take.wait = false;
    say("lead", { have_s: have, need_s: need, on: take.wait });
    raise();
  }
  const now = tempo(),
    was = take.tempo || {};
  if (now.need !== was.need || now.slow !== was.slow || now.hold !== was.hold) {
    take.tempo = now;
    ring?.postMessage({ op: "pace", turn: take.turn, ...now });
  }
}

const orders = {
  open,
  port: m => {
    ring = m.port;
    ringRate = m.rate;
    ring.onmessage = e => onReport(e.data);
    if (take?.samples) seat(take.turn, take.played, take.played > 0);
  },
  start,
  cancel: m => {
    if (take?.seq === m.seq && !take.over) {
      drop();
      if (take.samples) sharePeaks(true);
      say("stopped", { received: take.samples?.length ?? 0 });
    }
  },
  seek: m => {
    if (take?.samples) {
      take.played = Math.max(
        0,
        Math.min(take.samples.length, Math.round(m.at_s * take.samples.rate))
      );
      take.ended = take.over || take.ended;
      seat(m.turn, take.played, true);
      raise();
    }
  },
  wait: m => {
    if (take?.samples && !take.over) {
      take.wait = m.on;
      pace();
      if (!m.on) say("lead", { on: false });
    }
  },
  save: m => {
    if (take?.samples) {
      const wav = take.samples.wav(m.label);
      say("wav", { wav }, [wav]);
    }
  },
  locale: m => {
    home.locale = m.locale;
    send({ op: "locale", locale: m.locale });
  },
  hidden: m => {
    home.hidden = m.on;
    raise();
  }
};
onmessage = e => orders[e.data.op](e.data);
