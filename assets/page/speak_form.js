// @ts-check
/* From widgets to a request: which voice is meant, what is missing, what is remembered. Blind to
   sound. */
import { acts } from "./acts.js";
import { stopPreview } from "./audio_preview.js";
import { startBatch } from "./batch.js";
import { convert } from "./convert.js";
import { engine, hasNatural, toast } from "./engine_status.js";
import { facts, strings } from "./facts.js";
import { choose, field, mode, setMode, tab, tabNow, toText, when } from "./fields.js";
import { LANGUAGES, NAMES, put, remembered } from "./form_values.js";
import { notice, regenerate } from "./generation.js";
import { draw, live, parts, send } from "./parts.js";
import { store } from "./store.js";
import { said, t } from "./strings.js";
import { restyle } from "./style.js";
import { esc } from "./text.js";
import { recount } from "./text_tools.js";
import { draft, isTold, modelOf, source, voiceNow } from "./voice_choice.js";

const page = document.documentElement.dataset;

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
  regenerate({
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
document.addEventListener("kk:unseen", e => {
  if (e.detail.id === "kk-seed") put({ seed: e.detail.value });
});
acts.dice = () =>
  put({
    seed: String(Math.floor(Math.random() * 2 ** 31)),
    random: false
  });
document.addEventListener("input", e => {
  // a seed typed by hand is meant
  if (e.isTrusted && e.target.closest?.("#kk-seed"))
    put({
      seed: e.target.value,
      random: false
    });
});
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
