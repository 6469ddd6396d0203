// @ts-check
/* The settings of this browser: each acts at once, is remembered here, and is put into the widgets
   of the settings tab. */
(() => {
  const { live, store, firstOf } = KK;
  const is = (what, otherwise) =>
    (firstOf(["on", "off"], store.get(what)) ?? (otherwise ? "on" : "off")) === "on";

  KK.settings = {
    get autoplay() {
      return is("autoplay", true);
    }
  };
  KK.set = (what, on) => {
    if (what === "autoplay") store.set("autoplay", on ? "on" : "off");
    if (what === "keys") store.set("keys", on ? "on" : "off");
    if (what === "motion") {
      store.set("motion", on ? "less" : "full");
      KK.paintMotion();
    }
  };
  KK.settingsNow = (keep, label) => [
    KK.lang,
    KK.themeNow(),
    KK.settings.autoplay,
    store.get("motion") === "less",
    is("keys", true),
    is("notice", false),
    String(KK.storage()?.days ?? keep),
    is("label", label)
  ];
  const tell = () =>
    live.form?.trigger("privacy", {
      label: is("label", true),
      notice: is("notice", false)
    });
  KK.setPrivacy = (what, v) => {
    // the studio knows it, for all browsers of an account
    if (what === "keep") return KK.send("takes", { op: "keep", days: Number(v) });
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
})();
