// @ts-check
/* The page's own script, first of all: sentences, icons, one mount() that every drawn part calls,
   the fields by name, one set of listeners. It runs from <head>, before Gradio mounts, and lives
   once on window: a re-render calls mount() again and finds its state here. */
window.KK ??= (() => {
  const store = {
    get: k => {
      try {
        return localStorage.getItem("kk." + k);
      } catch {
        return null;
      }
    },
    set: (k, v) => {
      try {
        localStorage.setItem("kk." + k, v);
      } catch {
        /* private mode: nothing is remembered */
      }
    }
  };
  const query = new URLSearchParams(location.search);
  /* The first of `values` that is known: an address and a browser's memory may hold anything. */
  const firstOf = (known, ...values) => values.find(v => known.includes(v));
  let lang =
    firstOf(
      ["zh", "en"],
      query.get("lang")?.slice(0, 2).toLowerCase(),
      store.get("lang"),
      KK_FACTS.lang,
      (navigator.language || "zh").slice(0, 2)
    ) || "en";

  const mac = /Mac|iPhone|iPad/.test(navigator.platform);
  const esc = s => String(s ?? "").replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);
  /* The sentence of a key. {n} is what `vars` holds, {n|day|days} the form that fits it. */
  const t = (key, vars = {}, language = lang) =>
    (KK_STRINGS[language][key] ?? key).replace(
      /\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g,
      (_, k, one, many) => (one === undefined ? (vars[k] ?? "") : +vars[k] === 1 ? one : many)
    );
  /* How long a sound is, one way everywhere: m:ss, and h:mm:ss from an hour on. */
  const clock = seconds => {
    const s = Math.round(seconds),
      h = Math.floor(s / 3600),
      two = n => String(n).padStart(2, "0");
    return h
      ? `${h}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`
      : `${Math.floor(s / 60)}:${two(s % 60)}`;
  };
  // a sentence that came from Python in both languages
  const said = two => (two ? two[lang] || two.en || "" : "");
  const ico = (name, size = 18) =>
    `<svg class="kk-ico" style="width:${size}px;height:${size}px" viewBox="0 0 24 24"
      aria-hidden="true">${ICONS[name]}</svg>`;
  const ICONS = {
    play: '<path d="M8 5.5v13l10.5-6.5z" fill="currentColor" stroke="none"/>',
    pause: '<path d="M9 6v12M15 6v12" stroke-width="3"/>',
    stop: '<rect x="7" y="7" width="10" height="10" rx="1.5" fill="currentColor" stroke="none"/>',
    wave: '<path d="M4 10v4M8 7v10M12 4v16M16 8v8M20 10v4" stroke-width="2"/>',
    down: '<path d="M12 4v11m-4.5-4 4.5 4.5 4.5-4.5M5 20h14"/>',
    up: '<path d="M12 15.5V4.5M7.5 9 12 4.5 16.5 9M5 20h14"/>',
    pen: '<path d="M5 19h3.5L19 8.5 15.5 5 5 15.5zM13 7.5l3.5 3.5"/>',
    bin: '<path d="M5 7h14M10 4.5h4M7 7l.8 12.5h8.400L17 7M10.5 11v5M13.5 11v5"/>',
    share:
      '<circle cx="6.5" cy="12" r="2.5"/><circle cx="17" cy="6" r="2.5"/>' +
      '<circle cx="17" cy="18" r="2.5"/>' +
      '<path d="m8.800 10.8 6-3.4M8.800 13.2l6 3.4"/>',
    search: '<circle cx="11" cy="11" r="6"/><path d="m15.5 15.5 4.5 4.5"/>',
    warn: '<path d="M12 4 2.8 19.5h18.4zM12 10v4.5M12 17.2v.1"/>',
    bad: '<circle cx="12" cy="12" r="9"/><path d="M12 7.5v5.5M12 16.2v.1"/>',
    ok: '<circle cx="12" cy="12" r="9"/><path d="m8.2 12.3 2.6 2.6 5-5.4"/>',
    star: '<path d="m12 4 2.4 5 5.4.7-4 3.8 1 5.5-4.8-2.7L7.2 19l1-5.5-4-3.8 5.4-.7z"/>',
    again: '<path d="M19.5 12a7.5 7.5 0 1 1-2.3-5.4M19.5 4v4h-4"/>',
    light:
      '<circle cx="12" cy="12" r="4"/>' +
      '<path d="M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6 7 7M17 17l1.4 1.4' +
      'M18.4 5.6 17 7M7 17l-1.4 1.4"/>',
    dark: '<path d="M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z"/>',
    system: '<rect x="3.5" y="5" width="17" height="11.5" rx="2"/><path d="M9 20h6"/>',
    code:
      '<path d="m8.500 7.500-4.500 4.500 4.500 4.500M15.500 7.500l4.500 4.500' +
      '-4.500 4.500M13.500 5l-3 14"/>',
    leave: '<path d="M10 4.5H5.500V19.5H10M14.500 8l4 4-4 4M18.500 12H9.500"/>',
    help:
      '<circle cx="12" cy="12" r="9"/><path d="M9.6 9.4' +
      'a2.5 2.5 0 1 1 3.5 2.5c-.8.4-1.1.9-1.1 1.8M12 16.6v.1"/>'
  };
  /* Below the studio's own root, which holds scheme, host and sub-path. Never derived from the
     address of the page. */
  const root = () => (window.gradio_config?.root || "").replace(/\/$/, "");

  // ---- mount: the one door between gr.HTML and us -----------------------------------------------
  /** @type {Kaikou["parts"]} */
  const parts = {}; // name -> (root, data) => void : draws
  // name -> { root, data, trigger } : what is on the page now; is_own: what Python sends it is too
  // old
  /** @type {Kaikou["live"]} */
  const live = {};
  const booting = []; // run once, when the first part is mounted
  let booted = false;

  function mount(name, element, props, watch, trigger) {
    const read = () => {
      try {
        return JSON.parse(props.value || "null");
      } catch {
        return null;
      }
    };
    live[name] = {
      root: element,
      data: read(),
      trigger
    };
    if (!booted) {
      booted = true;
      booting.forEach(f => f());
    }
    draw(name);
    watch?.("value", () => {
      if (live[name].is_own) return; // the part has asked the studio itself since
      live[name].data = read();
      draw(name);
    }); // fires after Gradio redrew the template
  }

  function draw(name) {
    const part = live[name];
    if (!part?.root.isConnected) return;
    const keep = part.root.contains(document.activeElement) ? mark(document.activeElement) : null;
    (parts[name] ?? parts[name.split("_")[0]])?.(part.root, part.data);
    translate(part.root);
    if (keep && !part.root.contains(document.activeElement))
      part.root.querySelector(keep)?.focus({
        preventScroll: true
      }); // a redraw must not drop the focus
  }
  const mark = el =>
    el.dataset.do
      ? `[data-do="${el.dataset.do}"]` +
        ["v", "id", "i", "code", "g"]
          .map(k => (el.dataset[k] == null ? "" : `[data-${k}="${CSS.escape(el.dataset[k])}"]`))
          .join("")
      : el.id
        ? "#" + CSS.escape(el.id)
        : null;

  function translate(el) {
    el.querySelectorAll("[data-t]").forEach(e => {
      e.textContent = t(e.dataset.t);
    });
    el.querySelectorAll("[data-a]").forEach(e => {
      e.setAttribute("aria-label", t(e.dataset.a));
    });
    el.querySelectorAll("[data-tip]").forEach(e => {
      e.title = t(e.dataset.tip);
    });
  }
  const send = (name, what) => live[name]?.trigger("act", what); // to Python, by Gradio's own queue

  // ---- Gradio fields, by elem_id ----------------------------------------------------------------
  const field = id => document.querySelector(`#${id} textarea, #${id} input:not([type=range])`);

  function setField(id, value) {
    const el = field(id);
    // Gradio draws what lies in a closed fold only when it opens
    if (!el) return KK.putUnseen?.(id, value);
    Object.getOwnPropertyDescriptor(Object.getPrototypeOf(el), "value").set.call(el, value);
    el.dispatchEvent(
      new Event("input", {
        bubbles: true
      })
    );
  }
  const chosen = (id, otherwise) =>
    // not :checked: the radios do not share a name
    document.querySelector(`#${id} input[aria-checked=true]`)?.value || otherwise;
  const choose = (id, v) => document.querySelector(`#${id} input[value="${v}"]`)?.click();
  const mode = () => chosen("kk-mode", "zero_shot"),
    setMode = v => choose("kk-mode", v);
  const when = (ready, then, left = 300) => {
    const el = ready();
    if (el) then(el);
    else if (left) requestAnimationFrame(() => when(ready, then, left - 1));
  };
  /* Whether it can take the focus: a page that was just shown is still hidden for a frame, where a
     theme fades. */
  const isSeen = el => !!el?.offsetParent && getComputedStyle(el).visibility === "visible";
  const tabNow = () =>
    document.querySelector("#kk-tabs [role=tab][aria-selected=true]")?.dataset.tabId || "speak";
  const tab = id => document.querySelector(`[role=tab][data-tab-id=${id}]`)?.click();

  // ---- one set of listeners on document: they outlive every re-render ---------------------------
  /** @type {Kaikou["acts"]} */
  const acts = {}; // data-do="name" -> (button, event)
  document.addEventListener("click", e => {
    const b = e.target.closest?.("[data-do]");
    if (b && !b.disabled) acts[b.dataset.do]?.(b, e);
  });
  document.addEventListener("input", e => {
    if (e.target.closest?.("#kk-text")) document.dispatchEvent(new CustomEvent("kk:text"));
  });
  const changed = (q, name) =>
    document.addEventListener("change", e => {
      if (e.target.closest?.(q))
        requestAnimationFrame(() => document.dispatchEvent(new CustomEvent(name)));
    });
  changed("#kk-mode", "kk:mode");
  changed("#kk-source", "kk:source");

  const typing = el =>
    el?.matches?.(
      "textarea, select, input:not([type=range],[type=radio],[type=checkbox]), [contenteditable]"
    );
  const letters = () => store.get("keys") !== "off";
  document.addEventListener("keydown", e => {
    // Enter that ends a pinyin candidate is not ours
    if (e.isComposing || e.keyCode === 229) return;
    const plain = !e.ctrlKey && !e.metaKey && !e.altKey,
      free = !typing(e.target);
    const run = name => {
      e.preventDefault();
      acts[name]?.(null, e);
    };
    if ((e.ctrlKey || e.metaKey) && e.key === "Enter") return run("go");
    if (e.key === "Escape" && !document.querySelector("[popover]:popover-open, dialog[open]"))
      return acts.stop?.(null, e);
    if (!plain || !free) return;
    if (
      e.key === " " &&
      !e.target.closest?.("button, a, label, summary, [role=button], [role=tab], input")
    )
      return run("toggle");
    if (!letters()) return;
    if (e.key === "?") return run("help");
    if (e.key === "/") {
      e.preventDefault();
      toText();
    }
    if (e.key.toLowerCase() === "r") return run("record");
    if (e.key.toLowerCase() === "d") return run("dice");
  });
  document.addEventListener("keydown", e => {
    // arrow keys inside our own radio groups
    const r = e.target.closest?.(".kk [role=radio]"),
      step = {
        ArrowRight: 1,
        ArrowDown: 1,
        ArrowLeft: -1,
        ArrowUp: -1
      }[e.key];
    if (!r || !step) return;
    const all = [...r.closest("[role=radiogroup]").querySelectorAll("[role=radio]")],
      next = all[(all.indexOf(r) + step + all.length) % all.length];
    e.preventDefault();
    next.focus();
    next.click();
  });
  const toText = () => {
    if (!field("kk-text")?.offsetParent) tab("speak");
    when(
      () => field("kk-text")?.offsetParent && field("kk-text"),
      el => el.focus()
    );
  };
  acts.skip = (_, e) => {
    e.preventDefault();
    toText();
  };

  return {
    t,
    clock,
    said,
    esc,
    ico,
    mac,
    store,
    query,
    firstOf,
    root,
    mount,
    draw,
    parts,
    live,
    acts,
    send,
    field,
    setField,
    chosen,
    choose,
    mode,
    setMode,
    when,
    tab,
    tabNow,
    isSeen,
    toText,
    translate,
    booting,
    get lang() {
      return lang;
    },
    set lang(v) {
      lang = v;
    }
  };
})();
