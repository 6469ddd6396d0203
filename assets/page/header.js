/* The header: brand, engine pill with its pop-over, language, theme, keys; the banner of a shared page; and the toast. */
(() => {
  const {
    t,
    esc,
    ico,
    parts,
    acts,
    live
  } = KK;
  const why = e => (KK.lang === "zh" ? e.reason_zh || e.reason : e.reason) || "";
  const TONE = {
    starting: "work",
    broken: "bad",
    offline: "bad"
  };
  KK.engine = () => live.header?.data || {
    state: "starting"
  };

  const mark =
    '<svg width="26" height="26" viewBox="0 0 26 26" fill="none" stroke="currentColor" stroke-width="2.6" stroke-linecap="round" aria-hidden="true"><path d="M17 3.5H7A3.5 3.5 0 0 0 3.5 7v12A3.5 3.5 0 0 0 7 22.5h10"/><path d="M13 10v6M18 7.5v11M23 11v4"/></svg>';
  const ring = p =>
    `<svg class="kk-ringp" width="16" height="16" viewBox="0 0 16 16"
        aria-hidden="true"><circle cx="8" cy="8" r="6.5" fill="none" stroke="var(--kk-line)" stroke-width="2.5"/><circle cx="8" cy="8" r="6.5" fill="none" stroke="var(--kk-accent)" stroke-width="2.5" stroke-dasharray="${Math.max(4, p * 40.84).toFixed(1)} 41"/></svg>`;

  /* What the pill says: state, words, and the honest lines of its pop-over. */
  function words(e) {
    const name = e.basic ? t("eng.ready") : t("eng.full", {
      e: e.engine || ""
    });
    const n = e.streams || 0,
      state = e.state === "ready" && n > 1 ? "busy" : ["starting", "ready", "busy", "broken", "offline"].includes(e.state) ? e.state :
      "ready";
    const main = state === "ready" ? name : state === "busy" ? t("eng.busy", {
      n
    }) : t("eng." + state);
    const lines = [];
    if (e.state === "starting") lines.push(why(e) || t("eng.d.starting"));
    if (e.state === "broken") lines.push(why(e) || t("eng.d.broken"));
    if (e.state === "offline") lines.push(t("eng.d.offline"));
    if (e.basic && e.state !== "offline") lines.push(t("eng.d.basic"));
    if (["ready", "busy"].includes(e.state) && e.rtf) lines.push(t("eng.d.rtf", {
      rtf: (+e.rtf).toFixed(2)
    }));
    if (n) lines.push(t("eng.d.busy", {
      n,
      q: e.waiting || 0
    }));
    return {
      main,
      short: t(`eng.${state}.s`, {
        n
      }),
      lines
    };
  }

  const keyRows = () => [
    [KK.mac ? "⌘ ↵" : "Ctrl ↵", "key.go"],
    ["Esc", "key.stop"],
    ["Space", "key.play"],
    ["← →", "key.seek"],
    ["R", "key.rec"],
    ["/", "key.text"],
    ["D", "key.dice"],
    ["?", "key.help"]
  ];
  parts.header = root => {
    if (!root.querySelector(".kk-head")) build(root);
    const e = KK.engine(),
      w = words(e),
      tone = TONE[e.state] || "ok",
      pill = root.querySelector(".kk-eng");
    root.querySelectorAll(".kk-lang button").forEach(b => b.setAttribute("aria-pressed", String(b.dataset.v === KK.lang)));
    const theme = root.querySelector("[data-do=theme]");
    theme.innerHTML = ico(KK.themeNow());
    theme.title = t("theme." + KK.themeNow());
    theme.setAttribute("aria-label", `${t("theme.label")}: ${t("theme." + KK.themeNow())}`);
    pill.dataset.tone = tone;
    pill.innerHTML =
      `<span class="kk-vh">${esc(t("eng.label"))}: </span>${tone === "work" ? ring(e.progress || 0.1) : `<span class="kk-dot"></span>`}<span class="kk-engtext kk-num"><b>${esc(w.main)}</b></span><span
          class="kk-engshort kk-num">${esc(w.short)}</span>`;
    root.querySelector("#kk-engpop").innerHTML =
      `<h2>${esc(t("eng.label"))}</h2><div class="kk-engrow"
          data-tone="${tone}">${tone === "work" ? ring(e.progress || 0.1) : `<span class="kk-dot"></span>`}<b
          class="kk-num">${esc(w.main)}</b><span></span>${w.lines.map(l => `<p>${esc(l)}</p>`).join("")}</div>`;
    root.querySelector("#kk-keys").innerHTML =
      `<h2>${esc(t("key.title"))}</h2><div
          class="kk-keys">${keyRows().map(([k, s]) => `<kbd>${k}</kbd><span>${esc(t(s))}</span>`).join("")}</div>`;
    root.querySelector(".kk-banner")?.replaceChildren(t("share.banner"));
  };

  function build(root) {
    root.innerHTML =
      `<header class="kk kk-head">
      <a class="kk-skip" href="#kk-text" data-do="skip" data-t="nav.skip"></a>
      <div class="kk-brand">${mark}<h1 lang="zh-CN">${esc(KK_STRINGS.zh["app.name"])}</h1><span lang="en">${esc(KK_STRINGS.en["app.name"])}</span></div>
      <div class="kk-space"></div>
      <button type="button" class="kk-eng" popovertarget="kk-engpop"></button>
      <div class="kk-lang" role="group" data-a="lang.label"><button type="button" data-do="lang" data-v="zh" lang="zh-CN" aria-label="中，中文">中</button><button type="button" data-do="lang" data-v="en" lang="en" aria-label="EN, English">EN</button></div>
      <button type="button" class="kk-iconb" data-do="theme"></button>
      <button type="button" class="kk-iconb kk-help" data-do="help" data-a="help.label">${ico("help")}</button>
      <div id="kk-engpop" popover></div><div id="kk-keys" popover></div></header>${KK_FACTS.share ? `<p class="kk kk-banner" role="note"></p>` : ""}`;
  }
  acts.help = () => document.getElementById("kk-keys")?.togglePopover();

  // ---- the engine's state: asked for rarely, never while nobody looks -----------------------------------------
  let timer = 0;
  let pace = 5000;
  async function ask(every) {
    if (every > 0) pace = every;
    clearTimeout(timer);
    if (document.hidden || !live.header) return;
    let next;
    try {
      const r = await fetch(KK.root() + "/tts/health", {
        cache: "no-store"
      });
      next = r.ok ? await r.json() : {
        ...KK.engine(),
        state: "offline"
      };
    } catch {
      next = {
        ...KK.engine(),
        state: "offline"
      };
    }
    const before = KK.engine();
    if (JSON.stringify(before) !== JSON.stringify(next)) {
      live.header.data = next;
      KK.draw("header");
      if (String(before.styles) !== String(next.styles) || before.basic !== next.basic) {
        KK.draw("style");
        KK.draw("under");
      }
      if (before.state === "starting" && next.state === "ready") KK.toast(t("eng.now.ready"));
      document.dispatchEvent(new CustomEvent("kk:engine"));
    }
    if (next.state !== "starting") pace = 5000;
    timer = setTimeout(ask, next.state === "ready" || next.state === "busy" ? 30000 : pace);
  }
  KK.askEngine = ask;
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) ask();
  });
  document.addEventListener("kk:ready", () => ask());

  // ---- toast: one polite line, with at most one button --------------------------------------------------------
  let away = 0;
  KK.toast = (text, button = "", then = null, ms = 5000) => {
    let el = document.getElementById("kk-toast");
    if (!el) {
      el = document.createElement("div");
      el.id = "kk-toast";
      el.className = "kk";
      el.setAttribute("role", "status");
      document.getElementById("kk-app")?.append(el);
    }
    clearTimeout(away);
    el.replaceChildren(Object.assign(document.createElement("span"), {
      textContent: text
    }));
    if (button) {
      const b = Object.assign(document.createElement("button"), {
        type: "button",
        className: "kk-link",
        textContent: button
      });
      b.addEventListener("click", () => {
        KK.hideToast();
        then();
      });
      el.append(b);
    }
    el.dataset.on = "";
    away = setTimeout(KK.hideToast, ms);
  };
  KK.hideToast = () => {
    const el = document.getElementById("kk-toast");
    if (el) {
      delete el.dataset.on;
      el.replaceChildren();
    }
  };
})();