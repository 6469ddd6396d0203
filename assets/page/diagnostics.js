// @ts-check
/* What is copied for whoever is asked for help: states, figures and the code of what failed. No
   text, no name, nothing that opens anything. */
import { player } from "../player/controller.js";
import { acts } from "./acts.js";
import { engine as engineState, modelList, toast } from "./engine_status.js";
import { lang, t } from "./strings.js";
import { themeNow } from "./theme.js";

acts.report = async () => {
  const { models, ...engine } = engineState(),
    p = player,
    c = p.output.ctx;
  const said = {
    engine,
    models: modelList().map(m => `${m.name} ${m.state}`),
    player: {
      state: p.state,
      code: p.info.code,
      via: p.via,
      meter: p.meter,
      counters: p.counters
    },
    sound: c && { state: c.state, rate: c.sampleRate },
    page: {
      lang: lang,
      theme: themeNow(),
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
  toast(t("eng.reported"));
};
