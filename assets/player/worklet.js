// @ts-check
/* The ring: the only clock of the player. Plays what the worker feeds, fades over what is missing,
   counts both. Blind to sockets, sentences and pages. process() never waits and makes nothing but
   the messages that leave it. Positions are samples at the context's rate. A `turn` names one run
   of feeding (a start or a seek); messages of a dead turn are dropped. */
const SIZE = 1 << 20,
  MASK = SIZE - 1; // 21 s at 48 kHz; the worker never has more than 20 s inside
const IDLE = 0,
  PRIME = 1,
  PLAY = 2,
  STALL = 3;
const NAMES = ["idle", "prime", "play", "stall"];

class Ring extends AudioWorkletProcessor {
  constructor() {
    super();
    this.buf = new Float32Array(SIZE);
    // the last 30 ms of what was cut off
    this.tail = new Float32Array(Math.ceil(sampleRate * 0.03));
    this.tailAt = 0;
    this.tailEnd = 0;
    this.fade = Math.round(sampleRate * 0.005);
    this.least = Math.round(sampleRate * 0.06); // of a stall: what is shorter than 50 ms crackles
    this.turn = 0;
    this.dead = 0;
    this.paused = false;
    this.quanta = 0;
    this.every = Math.round((sampleRate * 0.25) / 128);
    this.report = new Float64Array(3); // turn, next sample to play, queued
    this.counters = {
      ev: "counters",
      turn: 0,
      state: "idle",
      played: 0,
      rendered: 0,
      queued: 0,
      peakQueue: 0,
      underruns: 0,
      missing: 0,
      ctxTime: 0,
      moving: false
    };
    this.reset(0, 0);
    this.port.onmessage = e => this.order(e.data);
  }

  reset(turn, at) {
    this.turn = turn;
    this.pos = at;
    this.end = at;
    this.ended = false;
    this.state = IDLE;
    this.need = 128;
    this.gain = at ? 0 : 1;
    this.hold = false;
    this.slow = false;
    this.stalled = 0;
    this.heard = false;
    this.rendered = 0;
    this.underruns = 0;
    this.missing = 0;
    this.peak = 0;
  }

  /* From the page: cut off, pause, and once the other end of the worker's channel. */
  order(m) {
    if (m.op === "feed") {
      this.feed = m.port;
      this.feed.onmessage = e => this.take(e.data);
    } else if (m.op === "pause") this.paused = m.on;
    else if (m.op === "cancel") {
      this.dead = Math.max(this.dead, m.turn);
      if (this.turn <= m.turn && this.state !== IDLE) {
        this.cut(this.tail.length);
        this.state = IDLE;
        this.tell("cut");
      }
    }
  }

  /* From the worker, in order: start or seek, data, end. */
  take(m) {
    if (m.turn <= this.dead || m.turn < this.turn) return;
    if (m.op === "data") this.store(m);
    else if (m.op === "start") {
      if (this.state !== IDLE) this.cut(this.fade);
      const kept = m.keep
        ? [this.underruns, this.missing, this.rendered, this.peak, this.heard]
        : null;
      this.reset(m.turn, m.at);
      if (kept) [this.underruns, this.missing, this.rendered, this.peak, this.heard] = kept;
      this.need = m.need;
      this.hold = m.hold;
      this.slow = m.slow;
      this.again = m.keep;
      this.state = PRIME;
      if (!m.keep) this.paused = false;
    } else if (m.op === "end") this.ended = true;
    else if (m.op === "pace") {
      this.hold = m.hold;
      this.slow = m.slow;
      if (this.state === PRIME) this.need = m.need;
    }
  }

  store(m) {
    const at = this.end & MASK,
      first = Math.min(m.pcm.length, SIZE - at);
    this.buf.set(first === m.pcm.length ? m.pcm : m.pcm.subarray(0, first), at);
    if (first < m.pcm.length) this.buf.set(m.pcm.subarray(first), 0);
    this.end += m.pcm.length;
    this.peak = Math.max(this.peak, this.end - this.pos);
  }

  /* Keep up to n samples, faded to nothing, and let go of the rest. They sound before anything
     newer does. */
  cut(n) {
    if (this.gain === 0 || (this.state !== PLAY && this.state !== STALL)) return;
    const left = Math.min(n, this.end - this.pos);
    this.tailAt = 0;
    this.tailEnd = left;
    for (let i = 0; i < this.tailEnd; i++)
      this.tail[i] = this.buf[(this.pos + i) & MASK] * this.gain * (1 - (i + 1) / left);
  }

  tell(ev) {
    this.port.postMessage({
      ev,
      turn: this.turn,
      pos: this.pos,
      frame: currentFrame,
      time: currentTime,
      wall: Date.now(),
      underruns: this.underruns
    });
  }

  process(_, outputs) {
    const out = outputs[0][0],
      n = out.length;
    let i = 0;
    while (i < n && this.tailAt < this.tailEnd) out[i++] = this.tail[this.tailAt++];
    if (this.state !== IDLE && this.tailAt >= this.tailEnd) this.step(out, i, n);
    this.quanta++;
    if (this.state !== IDLE && this.quanta % 20 === 0) this.sendReport();
    if (this.quanta % this.every === 0) this.sendCounters();
    return true;
  }

  /* One quantum of the machine: may it start, must it stall, then the samples, then: was that the
     end? */
  step(out, from, n) {
    const queued = this.end - this.pos,
      free = !this.hold && !this.paused;
    if (this.state === PRIME && free && (queued >= this.need || this.ended)) {
      this.state = PLAY;
      this.tell(this.again ? "go" : "first");
    } else if (
      this.state === STALL &&
      this.stalled >= this.least &&
      (queued >= this.need || this.ended)
    ) {
      this.state = PLAY;
      this.tell("go");
    } else if (this.state === PLAY && free && !this.ended && queued < n + this.fade) {
      this.state = STALL;
      this.underruns++;
      this.stalled = 0;
      this.need = Math.min(0.3 * 2 ** (this.underruns - (this.slow ? 0 : 1)), 2) * sampleRate;
      this.tell("stall");
    }
    if (this.state === PRIME) return;
    const i = this.render(out, from, n, this.state === PLAY && free);
    if (this.state === STALL) {
      this.stalled += n;
      if (free) this.missing += n - i;
    }
    if (this.state === PLAY && this.ended && this.pos >= this.end) {
      this.state = IDLE;
      this.sendReport();
      this.sendCounters();
      this.tell("drained");
    } // whoever hears of the end knows what it came to
  }

  /* Samples from `pos` on; the gain walks to 1 or 0 in 5 ms. Returns where it stopped. */
  render(out, from, n, up) {
    const stop = Math.min(n, from + this.end - this.pos),
      step = 1 / this.fade;
    let i = from;
    for (; i < stop; i++) {
      if (up) {
        if (this.gain < 1) this.gain = Math.min(1, this.gain + step);
      } else if (this.gain > 0) this.gain = Math.max(0, this.gain - step);
      if (this.gain === 0 && !up) break;
      out[i] = this.buf[this.pos & MASK] * this.gain;
      this.pos++;
      if (!this.heard && Math.abs(out[i]) > 0.01) {
        this.heard = true;
        this.port.postMessage({
          ev: "audible",
          turn: this.turn,
          frame: currentFrame + i,
          wall: Date.now() + (i / sampleRate) * 1000
        });
      }
    }
    this.rendered += i - from;
    return i;
  }

  sendReport() {
    if (!this.feed) return;
    this.report[0] = this.turn;
    this.report[1] = this.pos;
    this.report[2] = this.end - this.pos;
    this.feed.postMessage(this.report);
  }

  sendCounters() {
    const c = this.counters;
    c.turn = this.turn;
    c.state = NAMES[this.state];
    c.played = this.pos;
    c.rendered = this.rendered;
    c.queued = this.end - this.pos;
    c.peakQueue = this.peak;
    c.underruns = this.underruns;
    c.missing = this.missing;
    c.ctxTime = currentTime;
    c.moving = this.state === PLAY && !this.paused && !this.hold;
    this.port.postMessage(c);
  }
}
registerProcessor("kk-ring", Ring);
