// @ts-check
/* The settings of this browser: each acts at once, is remembered here, and is put into the widgets
   of the settings tab. */
import { live, send } from "./parts.js";
import { storageInfo } from "./storage.js";
import { store } from "./store.js";
import { lang } from "./strings.js";
import { firstOf } from "./text.js";
import { paintMotion, themeNow } from "./theme.js";

const is = (what, otherwise) =>
  (firstOf(["on", "off"], store.get(what)) ?? (otherwise ? "on" : "off")) === "on";

export const settings = {
  get autoplay() {
    return is("autoplay", true);
  }
};
export const setPreference = (what, on) => {
  if (what === "autoplay") store.set("autoplay", on ? "on" : "off");
  if (what === "keys") store.set("keys", on ? "on" : "off");
  if (what === "motion") {
    store.set("motion", on ? "less" : "full");
    paintMotion();
  }
};
export const settingsNow = (keep, label) => [
  lang,
  themeNow(),
  settings.autoplay,
  store.get("motion") === "less",
  is("keys", true),
  is("notice", false),
  String(storageInfo()?.days ?? keep),
  is("label", label)
];
const tell = () =>
  live.form?.trigger("privacy", {
    label: is("label", true),
    notice: is("notice", false)
  });
export const setPrivacy = (what, v) => {
  // the studio knows it, for all browsers of an account
  if (what === "keep") return send("takes", { op: "keep", days: Number(v) });
  store.set(what, v ? "on" : "off");
  tell();
};
document.addEventListener("kk:ready", () => {
  if (["label", "notice"].some(k => store.get(k) !== null)) tell();
});
const show = () => live.form?.trigger("settings", {});
document.addEventListener("kk:ready", show);
document.addEventListener("kk:lang", show);
document.addEventListener("kk:storage", show);
document.addEventListener("kk:themed", show);
