/* The browser's audio context: made and resumed inside a gesture, watched, rebuilt. Joins the ring to the worker and then steps aside.
   Blind to streams; tells its owner only "running or not" and what the ring says. */
KK.makeOutput = ({ base, worker, onState, onRing }) => {
  const O = { ctx: null, node: null, rate: 24000, stuck: false, gestureAt: 0, unlocking: false };
  const QUIET = ["Shift", "Control", "Alt", "Meta", "Escape", "CapsLock", "Tab"];      // keys that unlock nothing
  let still = 0, lastTime = -1, asked = 0;

  O.running = () => !!O.ctx && O.ctx.state === "running" && !O.stuck;
  O.post = m => O.node?.port.postMessage(m);

  /* Must run synchronously inside a gesture: a context made earlier stays suspended, and its pending resume does not complete by itself. */
  function build() {
    close(); asked = O.rate;
    try { O.ctx = new AudioContext({ sampleRate: O.rate, latencyHint: "interactive" }); }
    catch { O.ctx = new AudioContext({ latencyHint: "interactive" }); }                // the worker resamples
    const ctx = O.ctx;
    ctx.resume();
    if (navigator.audioSession) navigator.audioSession.type = "playback";
    ctx.onstatechange = () => { if (ctx === O.ctx && ctx.state !== "interrupted") onState(); };   // interrupted passes by itself
    ctx.audioWorklet.addModule(base + "ring.js").then(() => {
      if (ctx !== O.ctx) return;
      const node = O.node = new AudioWorkletNode(ctx, "kk-ring", { numberOfInputs: 0, outputChannelCount: [1] }), { port1, port2 } = new MessageChannel();
      node.port.onmessage = e => onRing(e.data);
      node.port.postMessage({ op: "feed", port: port1 }, [port1]);
      worker.postMessage({ op: "port", port: port2, rate: ctx.sampleRate }, [port2]);
      node.connect(ctx.destination);
      onState();
    }, e => { console.error("kk-ring", e.message); O.stuck = true; onState(); });
    onState();
  }
  function close() { const old = O.ctx; O.ctx = O.node = null; O.stuck = false; lastTime = -1; if (old && old.state !== "closed") old.close(); }

  function gesture(e) {
    if (!e.isTrusted || e.type === "keydown" && QUIET.includes(e.key)) return;
    if (e.type !== "pointerdown") O.gestureAt = e.timeStamp;                           // time zero of the first sound
    if (e.type !== "click" || e.detail === 0) O.unlocking = O.locked?.() ?? false;     // the click that follows this press is part of it
    if (!O.ctx || O.stuck || O.idle?.() && O.ctx.sampleRate !== O.rate && asked !== O.rate) build();
    else if (O.ctx.state !== "running") O.ctx.resume();
  }
  for (const kind of ["pointerdown", "keydown", "click"]) document.addEventListener(kind, gesture, { capture: true, passive: true });

  /* Called four times a second while there is something to play: a context that says running but whose clock stands is dead. */
  O.watch = playing => {
    const t = O.ctx?.currentTime ?? -1;
    still = playing && O.ctx?.state === "running" && t === lastTime ? still + 1 : 0;
    lastTime = t;
    if (still < 4) return;
    still = 0; close(); O.stuck = true;
    worker.postMessage({ op: "port", port: null, rate: 24000 });                       // the next gesture builds a new one at the same place
    onState();
  };

  /* The ring's wall clock -> performance.now() of this page, ms. Whole milliseconds: half of one is the fairest guess. */
  O.when = wall => wall + 0.5 - performance.timeOrigin;
  /* When a frame of the context is heard, in performance.now() ms; null where the browser does not say. */
  O.heardAt = frame => { const s = O.ctx?.getOutputTimestamp?.(); return s?.performanceTime ? s.performanceTime + (frame / O.ctx.sampleRate - s.contextTime) * 1000 : null; };
  return O;
};
