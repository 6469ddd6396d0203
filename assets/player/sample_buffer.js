// @ts-check
/* The samples of one take, as they came: s16 at the stream's rate. Gives floats at the
   loudspeaker's rate, peaks, and a WAV. Blind to sockets and to time. Imported by the worker. */
const PEAK_HZ = 100; // one value per 10 ms
const TAPS = 32,
  PHASES = 1024;

export class Samples {
  constructor(rate) {
    this.rate = rate;
    this.pcm = new Int16Array(rate * 16);
    this.length = 0;
    this.peaked = 0;
  }

  append(pcm) {
    if (this.length + pcm.length > this.pcm.length) {
      const more = new Int16Array(Math.max(this.pcm.length * 2, this.length + pcm.length));
      more.set(this.pcm.subarray(0, this.length));
      this.pcm = more;
    }
    this.pcm.set(pcm, this.length);
    this.length += pcm.length;
  }

  /* How many samples at `rate` can be made now; with `whole` the last ones are made without waiting
     for their right neighbours. */
  at(rate, whole) {
    if (rate === this.rate) return this.length;
    const usable = whole ? this.length : Math.max(0, this.length - TAPS);
    return whole
      ? Math.round((usable * rate) / this.rate)
      : Math.floor((usable * rate) / this.rate);
  }

  /* Float32Array (n,) at `rate`, beginning at that rate's sample `from`. Each sample depends on its
     place alone, so seeking is exact. */
  floats(from, n, rate) {
    const out = new Float32Array(n);
    if (rate === this.rate) {
      for (let i = 0; i < n; i++) out[i] = this.pcm[from + i] / 32768;
      return out;
    }
    const table = sinc(this.rate, rate),
      half = TAPS / 2;
    for (let i = 0; i < n; i++) {
      const x = ((from + i) * this.rate) / rate,
        left = Math.floor(x),
        row = Math.round((x - left) * PHASES) * TAPS;
      let sum = 0;
      for (let k = 0; k < TAPS; k++) {
        const j = left + k - half + 1;
        if (j >= 0 && j < this.length) sum += this.pcm[j] * table[row + k];
      }
      out[i] = sum / 32768;
    }
    return out;
  }

  /* Peaks 0..1 that became whole since the last call, one per 10 ms; with `whole` also the broken
     last one. */
  peaks(whole) {
    const step = this.rate / PEAK_HZ,
      n = whole ? Math.ceil(this.length / step) : Math.floor(this.length / step),
      out = [];
    for (; this.peaked < n; this.peaked++) {
      let top = 0;
      for (
        let i = Math.round(this.peaked * step),
          end = Math.min(this.length, Math.round((this.peaked + 1) * step));
        i < end;
        i++
      )
        top = Math.max(top, Math.abs(this.pcm[i]));
      out.push(top / 32768);
    }
    return out;
  }

  /* A whole WAV file of what is there: fmt, LIST/INFO with the label, data; all sizes true. */
  wav(label) {
    const text = new TextEncoder().encode(label),
      pad = text.length + 2 - (text.length % 2),
      info = label ? 20 + pad : 0,
      bytes = this.length * 2;
    const v = new DataView(new ArrayBuffer(44 + info + bytes)),
      name = (at, s) => [...s].forEach((c, i) => v.setUint8(at + i, c.charCodeAt(0)));
    name(0, "RIFF");
    v.setUint32(4, 36 + info + bytes, true);
    name(8, "WAVEfmt ");
    v.setUint32(16, 16, true);
    v.setUint16(20, 1, true);
    v.setUint16(22, 1, true);
    v.setUint32(24, this.rate, true);
    v.setUint32(28, this.rate * 2, true);
    v.setUint16(32, 2, true);
    v.setUint16(34, 16, true);
    if (label) {
      name(36, "LIST");
      v.setUint32(40, 12 + pad, true);
      name(44, "INFOICMT");
      v.setUint32(52, text.length + 1, true);
      new Uint8Array(v.buffer).set(text, 56);
    }
    name(36 + info, "data");
    v.setUint32(40 + info, bytes, true);
    new Int16Array(v.buffer, 44 + info).set(this.pcm.subarray(0, this.length));
    return v.buffer;
  }
}

/* Windowed-sinc rows for PHASES + 1 fractions between two samples; the cut-off follows the lower of
   both rates. */
const tables = new Map();
function sinc(from, to) {
  const key = `${from}>${to}`;
  if (tables.has(key)) return tables.get(key);
  const table = new Float32Array((PHASES + 1) * TAPS),
    cut = Math.min(1, to / from) * 0.96,
    half = TAPS / 2;
  for (let p = 0; p <= PHASES; p++) {
    let sum = 0;
    for (let k = 0; k < TAPS; k++) {
      const x = k - half + 1 - p / PHASES,
        w = Math.abs(x) >= half ? 0 : 0.5 + 0.5 * Math.cos((Math.PI * x) / half),
        y = Math.PI * x * cut;
      sum += table[p * TAPS + k] = (x === 0 ? 1 : Math.sin(y) / y) * w;
    }
    for (let k = 0; k < TAPS; k++) table[p * TAPS + k] /= sum;
  }
  tables.set(key, table);
  return table;
}
