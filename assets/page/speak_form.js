// @ts-check
/* From widgets to a request: which voice is meant, what is missing, what is remembered. Blind to
   sound. */
import { player } from "../player/controller.js";
import { acts } from "./acts.js";
import { stopPreview } from "./audio_preview.js";
import { startBatch } from "./batch.js";
import { convert } from "./convert.js";
import { askEngine, engine, hasNatural, toast } from "./engine_status.js";
import { facts, strings } from "./facts.js";
import { choose, chosen, field, mode, setMode, tab, tabNow, toText, when } from "./fields.js";
import { draw, live, parts, send } from "./parts.js";
import { settings } from "./preferences.js";
import { store } from "./store.js";
import { lang, said, t } from "./strings.js";
import { restyle } from "./style.js";
import { esc } from "./text.js";
import { recount } from "./text_tools.js";

const page = document.documentElement.dataset;
// ---- the voice that will speak ----------------------------------------------------------------
export const voices = () => live.picker?.data || [];
export const voiceName = v => (lang === "zh" && v.name_zh) || v.name;
export const noClip = () => mode() === "preset";
// how to say it counts
export const isTold = () =>
  mode() === "instruct" || (mode() === "zero_shot" && !!engine().told_clones);
/* What a mode offers: presets and starters in the preset mode, everything with a recording of its
   own elsewhere; and the presets too in modes that the engine says they speak in. */
const brought = () => !!engine().preset_modes?.includes(mode());
// without it only the model's own voices speak
const hears = () => engine().modes?.includes("cross_lingual") ?? true;
export const offered = () =>
  voices().filter(v => (noClip() ? v.starter && (!v.sample || hears()) : v.sample || brought()));
// of the sample voice that stands in: switching the page's language later changes no voice
const firstLanguage = lang;
const starter = () => {
  const list = offered().filter(v => v.starter);
  return (
    known(pick.starter, list) ||
    list.find(v => !v.sample) ||
    list.find(v => v.language === firstLanguage) ||
    list[0]
  );
};
export const pick = {
  saved: store.get("voice"),
  starter: store.get("starter")
};
const known = (id, list) => list.find(v => v.id === id) || null;
export const source = () => chosen("kk-source", "new");
export const draft = () => {
  const d = live.health?.data;
  return d?.id && !d.error && !live.health.busy ? d : null;
};
/* The chosen voice: {id, draft} of a clip, a saved voice, or a starter; null when there is none.
   With no clip in, the sample voice that the empty card names stands in, so that the first click
   on a fresh page already speaks. */
export const voiceNow = () => {
  const as = v =>
    v
      ? {
          id: v.id,
          voice: v
        }
      : null;
  if (noClip()) return as(starter());
  if (source() === "saved")
    return as(known(pick.saved, offered()) || voices().find(v => !v.starter) || starter());
  const d = draft();
  if (d)
    return {
      id: d.id,
      draft: d
    };
  if (live.health?.data?.error || live.health?.busy) return null;
  return as(starter());
};
export const voiceId = () => voiceNow()?.id ?? null;
export const useVoice = id => {
  const v = known(id, voices());
  if (!v) return;
  if (v.starter) {
    pick.starter = id;
    store.set("starter", id);
  }
  if (!noClip()) {
    pick.saved = id;
    store.set("voice", id);
  }
  ["picker", "health", "title_voice", "voices"].forEach(draw);
};

/* The built-in engine has two voices, which a request names as models; left to the engine, or
   with another one, it names none. */
export const modelOf = kind =>
  ["natural", "instant"].includes(kind) && engine().engine === "builtin"
    ? { model: "builtin-" + kind }
    : {};

/* What the button beside the player does on this tab, where that is not to generate. */
const GOES = {
  convert: "bar.convert",
  batch: "bar.batch",
  voices: "bar.tospeak",
  settings: "bar.tospeak"
};
export const goLabel = () => GOES[tabNow()] || "";

// ---- the Generate event ends here: values of the widgets, by name -----------------------------
export const speak = v => {
  stopPreview();
  if (!page.kk)
    return document.addEventListener("kk:shown", () => live.player.trigger("generate"), {
      once: true
    });
  if (tabNow() === "convert") return convert();
  if (tabNow() === "batch") return startBatch();
  if (goLabel()) return toText();
  const text = field("kk-text")?.value ?? v.text ?? "",
    who = voiceNow();
  if (!/[\p{L}\p{N}]/u.test(text)) {
    toText();
    return notice("notext");
  }
  if ([...text].length > facts.max_text) {
    toText();
    return notice("failed", {
      why: t("err.too_long_text")
    });
  }
  if (!who) {
    toVoice();
    return notice("novoice");
  }
  if (who.draft && !v.consent) return askConsent();
  if (who.draft && live.health.pending)
    return document.addEventListener("kk:draft", () => speak(v), {
      once: true
    }); // the part was changed a moment ago: that part is meant
  const fixed = !v.random && /^\d{1,15}$/.test(String(v.seed).trim());
  remember();
  go({
    input: text,
    voice: who.id,
    mode: mode(),
    instructions: isTold() ? v.instruct || "" : "",
    language: v.language,
    speed: +v.speed,
    seed: fixed ? Number(v.seed) : -1,
    profile: v.profile,
    ...(hasNatural() ? modelOf(v.voice_engine) : {}),
    transcript: who.draft ? fitting(v.transcript) : "",
    consent: !!(who.draft && v.consent)
  });
};
/* Once more, from a take: the same settings, whatever the form says now. */
export const regenerate = (params, at_s = null) => {
  stopPreview();
  go(params, at_s);
};
/* What the player was asked for last. */
export let lastParams = null;
let waiting = null; // pressed before the engine was ready: said in words, begun by itself
function go(params, at_s = null) {
  shown = null;
  waiting = null;
  if (engine().state === "starting") {
    waiting = [params, at_s];
    notice("warming");
    return askEngine(1000);
  }
  lastParams = params;
  player.start(params, at_s);
  if (!settings.autoplay) player.pause(true);
}
document.addEventListener("kk:engine", () => {
  if (waiting && engine().state !== "starting") go(...waiting);
});
/* Words of ours in the bar. The player repaints itself when its context wakes up; they are put
   back while it has nothing of its own to say. */
let shown = null;
export const notice = (state, info = {}) => {
  shown = {
    state,
    info
  };
  player.show(state, info);
};
export const unnotice = () => {
  shown = null;
  player.show("cold");
};
document.addEventListener("kk:player", () => {
  if (shown && ["cold", "warm"].includes(player.state)) {
    const s = shown;
    queueMicrotask(() => shown === s && player.state !== s.state && player.show(s.state, s.info));
  }
});

function toVoice() {
  page.voice = "open";
  draw("title_voice");
  if (!document.querySelector("#kk-voice")?.offsetParent) tab("speak");
  when(
    () =>
      document.querySelector(
        source() === "saved"
          ? "#kk-picker [data-do=use], #kk-picker input"
          : "#kk-ref :is(input, button)"
      ),
    el => el.focus()
  );
}

function askConsent() {
  page.voice = "open";
  draw("title_voice");
  live.need.data = {
    key: "consent.need",
    tone: "bad"
  };
  draw("need");
  const box = document.querySelector("#kk-consent input");
  box?.scrollIntoView({
    block: "center"
  });
  box?.focus();
}
parts.need = (root, d) => {
  const words = d?.said ? said(d.said) : d?.key ? t(d.key, d) : "";
  root.innerHTML =
    words && `<p class="kk kk-inline" data-tone="${d.tone || ""}" role="status">${esc(words)}</p>`;
};
const say = (key, tone = "") => {
  live.need.data = key
    ? {
        key,
        tone
      }
    : null;
  draw("need");
};
document.addEventListener("change", e => {
  if (
    e.target.closest?.("#kk-consent") &&
    e.target.checked &&
    live.need?.data?.key === "consent.need"
  )
    say("");
});
export const ticked = () => !!document.querySelector("#kk-consent input")?.checked;

// what is not said in the part in use is no transcript of it
const fitting = words => (live.health.ui?.fits && words) || "";
export const saveVoice = (name, transcript, consent) => {
  const d = draft();
  if (!d) {
    say("save.needclip", "bad");
    return document.querySelector("#kk-ref :is(input, button)")?.focus();
  }
  if (!name.trim()) {
    say("save.needname", "bad");
    return field("kk-savename")?.focus();
  }
  if (!consent) return askConsent();
  if (live.health.pending)
    return document.addEventListener("kk:draft", () => saveVoice(name, transcript, consent), {
      once: true
    });
  say("save.working");
  send("health", {
    op: "save",
    id: d.id,
    name: name.trim(),
    transcript: fitting(transcript),
    consent
  });
};

// ---- what is remembered in this browser, and put back -----------------------------------------
const LANGUAGES = ["zh", "en", "ja", "ko", "yue", "de", "es", "fr", "it", "ru"];
const FITS = {
  // what the widgets can show; what was remembered may be of another version, or anything
  mode: v => ["zero_shot", "cross_lingual", "instruct", "preset"].includes(v),
  instruct: v => typeof v === "string",
  speed: v => typeof v === "number" && v >= 0.5 && v <= 2,
  seed: v => typeof v === "string",
  random: v => typeof v === "boolean",
  language: v => ["auto", ...LANGUAGES].includes(v),
  profile: v => ["fast", "even", "smooth"].includes(v),
  voice_engine: v => ["natural", "instant"].includes(v)
};
export const remembered = () => {
  try {
    return Object.fromEntries(
      Object.entries(JSON.parse(store.get("form")) ?? {}).filter(
        ([k, v]) => Object.hasOwn(FITS, k) && FITS[k](v)
      )
    );
  } catch {
    return {};
  }
};
const NAMES = [
  "mode",
  "text",
  "instruct",
  "speed",
  "seed",
  "random",
  "language",
  "profile",
  "voice_engine"
];
let pending = null;
/* Gradio's own client event carries the values back into the widgets, whatever kind they are. */
export const put = values => {
  pending = {
    ...pending,
    ...values
  };
  live.form?.trigger("restore", {});
};
document.addEventListener("kk:unseen", e => {
  if (e.detail.id === "kk-seed") put({ seed: e.detail.value });
});
acts.dice = () =>
  put({
    seed: String(Math.floor(Math.random() * 2 ** 31)),
    random: false
  });
document.addEventListener("input", e => {
  if (e.isTrusted && e.target.closest?.("#kk-seed"))
    put({
      seed: e.target.value,
      random: false
    });
}); // a seed typed by hand is meant
export const restored = (...now) => {
  const v = pending || {};
  pending = null;
  if ("text" in v) settle();
  return NAMES.map((n, i) => v[n] ?? now[i]);
};
const settle = () =>
  setTimeout(() => {
    document.dispatchEvent(new CustomEvent("kk:text"));
    document.dispatchEvent(new CustomEvent("kk:mode"));
  }, 60);
export const rememberForm = (...now) => {
  const v = Object.fromEntries(NAMES.map((n, i) => [n, now[i]]));
  delete v.text;
  store.set("form", JSON.stringify(v));
  recount(); // in another language a text lasts longer
  restyle(); // and a dialect may not apply
};
const remember = () => store.set("text", field("kk-text")?.value || "");
let soon = 0;
document.addEventListener("kk:text", () => {
  clearTimeout(soon);
  soon = setTimeout(remember, 400);
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden && page.kk) remember();
});
document.addEventListener("kk:ready", () => {
  const old = remembered(),
    text = store.get("text"),
    first = text === null;
  // typed already, where the page was shown as it was
  const words = field("kk-text").value || (first ? t("ex.1") : text);
  put({
    ...old,
    text: words,
    speed: old.speed ?? 1
  });
  when(
    () => field("kk-text")?.value === words,
    () => {
      // now whatever is pressed works
      page.kk = "ready";
      document.dispatchEvent(new CustomEvent("kk:shown"));
    }
  );
  if (text && text !== strings.zh["ex.1"] && text !== strings.en["ex.1"]) toast(t("sys.restored"));
  if (store.get("source") === "saved") choose("kk-source", "saved");
});
parts.form = () => {};
/* Languages the engine does not speak leave the list; Gradio draws it anew each time it opens, so
   a sheet hides them. */
const hidden = document.createElement("style");
const languages = () => {
  const can = engine().languages,
    off = can ? LANGUAGES.filter(l => !can.includes(l)) : [];
  if (!hidden.isConnected) document.head.append(hidden);
  hidden.textContent = off
    .map(l => `#kk-language li[aria-label="${CSS.escape(t("lang." + l))}"] { display: none; }`)
    .join("\n");
  if (off.includes(remembered().language)) put({ language: "auto" });
};
["kk:engine", "kk:lang", "kk:ready"].forEach(n => document.addEventListener(n, languages));
document.addEventListener("kk:engine", () => {
  const can = engine().modes;
  if (can && !can.includes(mode()))
    setMode(can.find(m => document.querySelector(`#kk-mode input[value=${m}]`)) || "zero_shot");
});
document.addEventListener("kk:mode", () => {
  page.mode = mode();
  ["modehint", "picker", "title_voice", "health"].forEach(draw);
});
document.addEventListener("kk:source", () => {
  page.source = source();
  store.set("source", source());
  ["picker", "title_voice"].forEach(draw);
});
page.mode = "zero_shot";
page.source = "new";
