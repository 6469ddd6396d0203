// @ts-check
/* The player bar: one view of the player's state. Draws words, wave and figures, and turns presses
   into KK.player calls. Knows no socket and no sample. */
(() => {
  const { t, clock, ico, parts, acts } = KK,
    P = KK.player;
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
  const still = matchMedia("(prefers-reduced-motion: reduce)"),
    calm = () => KK.calm?.() ?? still.matches;
  const root = () => KK.live.player?.root,
    q = s => root()?.querySelector(s);
  const got = () => P.peaks.length / PEAK_HZ;
  let drag = null,
    frame = 0,
    wordsAt = 0,
    colours = null,
    scaledAt = 0;

  parts.player = r => {
    if (!r.querySelector(".kk-bar")) r.innerHTML = KK_PLAYER_HTML;
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
    const busy = P.busy(),
      s = P.state,
      kind = busy && s !== "locked" ? "stop" : "go",
      go = q(".kk-go"),
      look = kind + s;
    attr(bar, "data-state", s);
    attr(bar, "data-tone", TONE[s] || "");
    attr(go, "data-kind", kind);
    if (go.dataset.look !== look) {
      go.dataset.look = look;
      q(".kk-goico").innerHTML = ico(
        kind === "stop" ? "stop" : s === "locked" ? "play" : "wave",
        20
      );
    }
    text(go.querySelector("kbd"), kind === "stop" ? "Esc" : KK.mac ? "⌘↵" : "Ctrl ↵");
    text(q(".kk-golabel"), t(GO[s] || (busy ? "bar.stop" : KK.goLabel?.() || "bar.go")));
    const on = String(P.sounding),
      pp = q(".kk-pp"),
      save = q("[data-do=save]"),
      more = q("[data-do=second]"),
      act = second();
    pp.disabled = !P.peaks.length;
    attr(pp, "aria-label", t(P.sounding ? "bar.pause" : "bar.play"));
    if (pp.dataset.on !== on) {
      pp.dataset.on = on;
      pp.innerHTML = ico(P.sounding ? "pause" : "play", 20);
    }
    save.disabled = !P.peaks.length;
    save.innerHTML ||= ico("down");
    attr(save, "aria-label", t(P.whole ? "bar.save" : "bar.savepart"));
    attr(save, "title", t(P.whole ? "bar.save" : "bar.savepart"));
    more.hidden = !act;
    if (act) text(more, t(act));
    if (words) say();
    figures();
    tick();
  }
  /* "Starting…" only when it lasts: most streams speak before anyone could read it. */
  function say() {
    clearTimeout(wordsAt);
    const idle = KK.goLabel?.() ? "st.idle" : "st.cold",
      own = P.info.elsewhere
        ? "st.othertab"
        : P.state === "playing" && !P.info.n
          ? "st.sounding"
          : "st." + P.state;
    const write = () =>
      text(q("[role=status]"), t(["cold", "warm"].includes(P.state) ? idle : own, P.info));
    if (P.state === "requesting")
      wordsAt = setTimeout(() => P.state === "requesting" && write(), 150);
    else write();
  }
  function figures() {
    const m = P.meter,
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
  const canContinue = () => ["cancelled", "failed"].includes(P.state) && !!KK.canContinue?.(P.job);
  const second = () =>
    (canContinue()
      ? "takes.continue"
      : P.state === "failed"
        ? P.canBuiltin() && "bar.builtin"
        : P.waiting
          ? "bar.playnow"
          : ["slow", "playing", "stalled"].includes(P.state) &&
            P.meter.rtf > 1 &&
            !P.whole &&
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
    if (P.sounding && !calm()) tick();
  }
  /* The scale is the predicted length. It moves only when that was wrong: towards the truth, a
     tenth at a time. */
  function ease() {
    const want = Math.max(P.target, got()),
      now = performance.now();
    if (
      !P.peaks.length ||
      P.total === want ||
      !(want > P.total || P.whole || P.cut) ||
      now - scaledAt < 60
    )
      return;
    scaledAt = now;
    P.total =
      calm() || Math.abs(want / P.total - 1) < 0.1 ? want : P.total * (want > P.total ? 1.1 : 0.9);
    if (P.total !== want && !P.sounding) setTimeout(drawNow, 70);
  }
  function drawNow() {
    const c = q(".kk-canvas");
    if (!c) return;
    ease();
    const at = drag ?? P.position(),
      have = got(),
      whole = Math.max(P.total, have);
    const fixed = P.whole || P.cut;
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
        p = Math.max(p, P.peaks[k] || 0);
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
    const was = P.output.unlocking;
    P.output.unlocking = false;
    return was;
  };
  acts.go = () => {
    if (unlocked() || P.state === "locked") return;
    if (P.busy()) P.stop();
    else KK.live.player?.trigger?.("generate");
  };
  acts.stop = () => P.stop();
  acts.toggle = () => {
    if (!unlocked()) P.toggle();
  };
  acts.second = () => {
    if (canContinue()) KK.continueTake(P.job);
    else if (P.state === "failed") P.again("builtin");
    else P.wait(!P.waiting);
  };
  acts.save = () => P.save();
  const where = e => {
    const r = q(".kk-canvas").getBoundingClientRect();
    return Math.max(
      0,
      Math.min(got(), ((e.clientX - r.left) / r.width) * Math.max(P.total, got()))
    );
  };
  document.addEventListener("keydown", e => {
    if (!e.target.matches?.("#kk-player .kk-canvas, .kk-bar .kk-canvas")) return;
    const d = { ArrowLeft: -2, ArrowRight: 2, Home: -1e9, End: 1e9 }[e.key];
    if (d) {
      e.preventDefault();
      P.seek(P.position() + d);
    }
  });
  document.addEventListener("pointerdown", e => {
    const c = e.target.closest?.(".kk-bar .kk-canvas");
    if (!c || e.button || !P.peaks.length) return;
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
      P.seek(at);
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
})();
