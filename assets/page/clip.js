/* The clip on its way in, and how it sounds: the drop zone's own checks, the recorder's words, and A/B listening without a gap. */
(() => {
  const {
    t,
    acts,
    live
  } = KK;
  const MB = 2 ** 20;

  // ---- in: a file that cannot work is refused before it travels -------------------------------------------------
  const NAMES = /\.(wav|mp3|m4a|mp4|flac|ogg|oga|opus|webm|aac|aif|aiff)$/i;
  const fault = key => ({
    error: {
      zh: KK_STRINGS.zh[key],
      en: KK_STRINGS.en[key],
      code: key
    }
  });

  function refuse(files, e) {
    const f = files?.[0];
    if (!f) return;
    const key = f.size > KK_FACTS.max_clip_mb * MB ? "err.too_large" : !/^(audio|video)\//.test(f.type) && !NAMES.test(f.name) ?
      "err.bad_audio" : "";
    if (!key) return;
    e.preventDefault();
    e.stopImmediatePropagation();
    if (e.target.value) e.target.value = "";
    const card = e.target.closest("#kk-src") ? "source" : "health";
    live[card].data = fault(key);
    live[card].busy = false;
    KK.draw(card);
  }
  document.addEventListener("change", e => {
    if (e.target.matches?.(":is(#kk-ref, #kk-src) input[type=file]")) refuse(e.target.files, e);
  }, true);
  document.addEventListener("drop", e => {
    if (e.target.closest?.("#kk-ref, #kk-src")) refuse(e.dataTransfer?.files, e);
  }, true);
  KK.checking = () => {
    KK.listen.stop();
    live.health.busy = true;
    live.health.data = null;
    live.need.data = null;
    KK.draw("health");
    KK.draw("need");
    document.documentElement.dataset.clip = "in";
  };
  KK.cleared = () => {
    KK.listen.stop();
    live.health.busy = false;
    live.health.data = null;
    live.need.data = null;
    ["health", "need", "title_voice"].forEach(KK.draw);
  };

  /* Two recorders: the reference's, and on the tab Convert the one of the recording to convert. */
  const home = () => (KK.tabNow() === "convert" ? "#kk-src" : "#kk-ref");
  const within = q => document.querySelector(`${home()} ${q}`);
  const source = i => document.querySelectorAll(home() + " .source-selection button")[i];
  const newClip = then => {
    if (!document.querySelector("#kk-voice")?.offsetParent) KK.tab("speak");
    document.documentElement.dataset.voice = "open";
    KK.draw("title_voice");
    if (KK.noClip()) KK.setMode("zero_shot");
    if (KK.source() !== "new") KK.choose("kk-source", "new");
    then();
  };
  acts.otherclip = () => newClip(() => {
    document.querySelector("#kk-ref [aria-label=\"" + CSS.escape(t("ref.clear")) + "\"]")?.click();
    KK.when(() => source(0), b => {
      b.click();
      KK.when(() => document.querySelector("#kk-ref input[type=file]"), f => f.click(), 30);
    });
  });
  acts.import = acts.otherclip;
  acts.record = () => (home() === "#kk-src" ? record() : newClip(record));
  function record() {
    const stop = within("button.stop-button") || within(".stop-button-paused");
    if (stop?.offsetParent) return stop.click();
    if (within("audio.standard-player")) within(".icon-button-wrapper button")?.click();
    KK.when(() => source(1), b => {
      b.click();
      KK.when(() => within(".record-button"), r => r.click(), 60);
    });
  }
  /* The sentence below the recorder: something to read, or why the microphone does not work. */
  KK.parts.mic = root => {
    const why = !window.isSecureContext || !navigator.mediaDevices ? "ref.mic.insecure" : KK.micDenied === "NotFoundError" ?
      "ref.mic.none" : KK.micDenied ? "ref.mic.denied" : "";
    root.innerHTML =
      `<p class="kk kk-inline kk-micline"${why ? ' data-tone="warn" role="status"' : ""}>${KK.esc(t(why || "ref.read"))}</p>`;
  };
  const mics = () => ["mic", "mic_src"].forEach(KK.draw);
  const MAX_S = 30;
  let limit = 0; // a recording ends by itself
  document.addEventListener("click", e => {
    const box = e.target.closest?.(".record-button")?.closest("#kk-ref, #kk-src");
    if (!box) return;
    clearTimeout(limit);
    limit = setTimeout(() => {
      const b = box.querySelector(".stop-button");
      if (b?.offsetParent) b.click();
    }, MAX_S * 1000);
  });
  document.addEventListener("click", e => {
    const b = e.target.closest?.(":is(#kk-ref, #kk-src) .source-selection button");
    if (b) document.documentElement.dataset[b.closest("#kk-src") ? "micsrc" : "mic"] = b === source(1) ? "on" : "off";
  });
  if (navigator.mediaDevices?.getUserMedia) {
    const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
    navigator.mediaDevices.getUserMedia = async (...a) => {
      try {
        const s = await ask(...a);
        if (KK.micDenied) {
          KK.micDenied = "";
          mics();
        }
        return s;
      } catch (e) {
        if (["NotAllowedError", "NotFoundError"].includes(e.name)) {
          KK.micDenied = e.name;
          mics();
        }
        throw e;
      }
    };
  }

  // ---- listening: both versions run on one clock, only the gains move ------------------------------------------------
  const FADE_S = .02;
  let ctx = null,
    node = null; // node: {sources, gains, from, at, paired}
  const sounds = new Map(); // "id/amount" -> promise of AudioBuffer
  const buffer = (id, clean) => {
    const key = `${KK.draft()?.clip}/${clean}`; // windows and levels change the draft, not its clip
    if (!sounds.has(key)) {
      if (sounds.size > 6) sounds.delete(sounds.keys().next().value);
      sounds.set(key, fetch(`${KK.root()}/tts/draft/${encodeURIComponent(id)}/audio?clean=${clean}`).then(r => {
        if (!r.ok) throw new Error(String(r.status));
        return r.arrayBuffer();
      }).then(b => ctx.decodeAudioData(b)));
      sounds.get(key).catch(() => sounds.delete(key));
    }
    return sounds.get(key);
  };
  const ui = () => live.health.ui;
  /* `which` ("a", "b"): both versions are wanted, at the place where the sound is now. Without it the part is played from its start. */
  async function play(which) {
    const d = KK.draft();
    if (!d) return;
    if (which) ui().ab = which;
    if (node?.paired && which) return swap();
    KK.hush?.();
    KK.player?.pause(true);
    ctx ??= new AudioContext();
    ctx.resume();
    const pair = !!which || ui().ab === "b";
    try {
      const both = await Promise.all(pair ? [buffer(d.id, 0), buffer(d.id, KK.health.amount())] : [buffer(d.id, 0)]);
      begin(d, both, which && node ? place(d) : d.start_s);
    } catch {
      KK.toast(t("err.net"));
    }
  }
  const place = d => Math.min(d.end_s - .1, Math.max(d.start_s, node.from + ctx.currentTime - node.at));

  function begin(d, both, from) {
    halt();
    const gains = both.map((b, i) => {
      const g = ctx.createGain();
      g.gain.value = both.length === 1 || (ui().ab === "b") === (i === 1) ? 1 : 0;
      g.connect(ctx.destination);
      return g;
    });
    const at = ctx.currentTime + .03,
      sources = both.map((b, i) => {
        const s = ctx.createBufferSource();
        s.buffer = b;
        s.connect(gains[i]);
        s.start(at, from, Math.max(.05, d.end_s - from));
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
    KK.draw("health");
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
    KK.draw("health");
  }

  function head() {
    const el = live.health.root.querySelector(".kk-at"),
      d = KK.draft();
    if (!node || !el || !d) return;
    el.hidden = false;
    el.style.left = `${((node.from + Math.max(0, ctx.currentTime - node.at)) / d.report.duration_s * 100).toFixed(2)}%`;
    if (KK.calm()) setTimeout(head, 250);
    else requestAnimationFrame(head);
  }

  function halt() {
    node?.sources.forEach(s => {
      s.onended = null;
      try {
        s.stop();
      } catch {
        /* not started */ }
    });
    node = null;
  }

  function stop() {
    if (!node) return;
    halt();
    ui().sounding = false;
    KK.draw("health");
  }
  KK.listen = {
    play,
    stop,
    moved: () => {
      const d = KK.draft();
      if (node && d) {
        stop();
        play();
      }
    },
    amount: async () => {
      const d = KK.draft();
      if (!node || !d) return;
      const both = await Promise.all([buffer(d.id, 0), buffer(d.id, KK.health.amount())]).catch(() => null);
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
    KK.draw("health");
    play(b.dataset.v);
  };
})();