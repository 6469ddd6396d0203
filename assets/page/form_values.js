// @ts-check
/* What the form's widgets hold: what this browser remembers of them, and the way back into them. */
import { live } from "./parts.js";
import { store } from "./store.js";

export const LANGUAGES = ["zh", "en", "ja", "ko", "yue", "de", "es", "fr", "it", "ru"];
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
export const NAMES = [
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
