// @ts-check
/* What is copied for whoever is asked for help: states, figures and the code of what failed. No
   text, no name, nothing that opens anything. */
(() => {
  const { t, acts } = KK;

  acts.report = async () => {
    const { models, ...engine } = KK.engine(),
      p = KK.player,
      c = p.output.ctx;
    const said = {
      engine,
      models: KK.models().map(m => `${m.name} ${m.state}`),
      player: {
        state: p.state,
        code: p.info.code,
        via: p.via,
        meter: p.meter,
        counters: p.counters
      },
      sound: c && { state: c.state, rate: c.sampleRate },
      page: {
        lang: KK.lang,
        theme: KK.themeNow(),
        size: [innerWidth, innerHeight],
        browser: navigator.userAgent
      }
    };
    const words = JSON.stringify(said, null, 1);
    try {
      await navigator.clipboard.writeText(words);
    } catch {
      // no clipboard where the page is not served safely
      const el = Object.assign(document.createElement("textarea"), { value: words });
      document.getElementById("kk-engpop").append(el);
      el.select();
      document.execCommand("copy");
      el.remove();
    }
    KK.toast(t("eng.reported"));
  };
})();
