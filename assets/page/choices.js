/* The settings of this browser: each acts at once, is remembered here, and is put into the widgets of the settings tab. */
(() => {
  const { live, store } = KK;

  KK.settings = {
    get autoplay() {
      return store.get("autoplay") !== "off";
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
  KK.settingsNow = (keep, label) => [KK.lang, KK.themeNow(), KK.settings.autoplay, store.get("motion") === "less",
    store.get("keys") !== "off", store.get("notice") === "on", store.get("keep") ?? keep, (store.get("label") ?? (label ? "on" : "off")) === "on"
  ];
  const tell = () => live.form?.trigger("privacy", {
    days: Number(store.get("keep") ?? KK_FACTS.keep_days),
    label: store.get("label") !== "off",
    notice: store.get("notice") === "on"
  });
  KK.setPrivacy = (what, v) => {
    store.set(what, what === "keep" ? v : v ? "on" : "off");
    tell();
  };
  document.addEventListener("kk:ready", () => {
    if (["keep", "label", "notice"].some(k => store.get(k) !== null)) tell();
  });
  const show = () => live.form?.trigger("settings", {});
  document.addEventListener("kk:ready", show);
  document.addEventListener("kk:lang", show);
  document.addEventListener("kk:themed", show);
})();
