// @ts-check
/* What the studio wrote into the page: its figures, the sentences of both languages, the player's
   bar. Read once. */
const data = JSON.parse(document.getElementById("kk-data").textContent);
export const facts = data.facts;
export const strings = data.strings ?? window.gradio_config.i18n_translations;
export const barHtml = data.bar;
export const mac = /Mac|iPhone|iPad/.test(navigator.platform);

/* Below the studio's own root, which holds scheme, host and sub-path; on the page of a demo link
   below the link. Never derived from the address of the page. */
export const studioUrl = () =>
  facts.link ? location.origin + facts.link : (window.gradio_config?.root || "").replace(/\/$/, "");
