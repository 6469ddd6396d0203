// @ts-check
/* The page's address: each tab, a voice of the library and a job of the batches have one, behind
   the "#" of whatever the studio is served at; Back, Forward and a reload return there. Sets the
   page's title too. Blind to what a tab shows. */
import { tab, tabButton, tabNow } from "./fields.js";
import { t } from "./strings.js";

const TABS = ["speak", "voices", "convert", "batch", "settings"];
const FORM = /^#([a-z]+)(?:\/(.{1,300}))?$/;
/* What has addresses of its own inside a tab. show(id): the page went to that one, "" for none;
   now(): the one that is open; name(id): what it is called, "" while that is not known. */
export const places = {};
let at = { tab: "speak", id: "" };

function read() {
  const [, tab, id = ""] = FORM.exec(location.hash) || [];
  if (!TABS.includes(tab)) return { tab: "speak", id: "" };
  try {
    return { tab, id: places[tab] ? decodeURIComponent(id) : "" };
  } catch {
    // a "%" that stands for nothing
    return { tab, id };
  }
}
/* The whole of it: Gradio's page names a base, from which a mere "#" would be counted. */
export const addressOf = (tab, id = "") => {
  const hash = "#" + tab + (id && "/" + encodeURIComponent(id));
  return location.pathname + location.search + (tab === "speak" ? "" : hash);
};
export const drawTitle = () => {
  const name = at.id && places[at.tab].name(at.id);
  document.title = [name, t("tab." + at.tab), t("app.name")].filter(Boolean).join(" · ");
};
/* Somebody went there: a step of the history. `instead`: of the one before, which leads nowhere.
 */
export const setAddress = (tab, id = "", instead = false) => {
  if (tab === at.tab && id === at.id) return;
  const before = at.tab;
  at = { tab, id };
  history[instead ? "replaceState" : "pushState"](null, "", addressOf(tab, id));
  arrived(before);
};
function arrived(before) {
  drawTitle();
  if (before === at.tab) return;
  document.dispatchEvent(new CustomEvent("kk:tab", { detail: { tab: at.tab } }));
}
/* The page shows what the address says. */
function follow(is_step) {
  const before = at.tab;
  at = read();
  if (tabNow() !== at.tab) tab(at.tab);
  for (const name in places) places[name].show(name === at.tab ? at.id : "");
  arrived(before);
  if (!is_step || at.id) return;
  tabButton(at.tab)?.focus({ preventScroll: true });
}
addEventListener("popstate", () => follow(true)); // a press on a link with "#" says so too
document.addEventListener("kk:lang", drawTitle);
document.addEventListener("kk:ready", () => {
  if (tabNow() !== read().tab) tab(read().tab);
});
document.addEventListener("kk:shown", () => {
  // nothing that is hidden takes the focus
  follow(false);
  /* However a tab was chosen: a press, the arrow keys, or the page itself. */
  new MutationObserver(() => {
    const tab = tabNow();
    if (tab !== at.tab) setAddress(tab, places[tab]?.now());
  }).observe(document.getElementById("kk-tabs"), {
    subtree: true,
    attributeFilter: ["aria-selected"]
  });
});
