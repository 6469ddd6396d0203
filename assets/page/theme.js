// @ts-check
/* Language, theme, and the names Gradio leaves out. Both choices take effect at once and are
   remembered; ?lang= and ?theme= win for one visit. */
import { acts } from "./acts.js";
import { tabOf, when } from "./fields.js";
import { booting, draw, live } from "./parts.js";
import { query, store } from "./store.js";
import { lang, t, useLanguage } from "./strings.js";
import { firstOf } from "./text.js";

const page = document.documentElement;
export const touch = matchMedia("(pointer: coarse)");
const locale = l => (l === "zh" ? "zh-CN" : "en");
// Gradio loads its widgets in pieces, each kind its own download: the page is shown when the last
// of these is there
const LATE = ["#kk-text textarea", "#kk-transcript textarea", "#kk-mode input"];

export const setLang = async next => {
  useLanguage(next);
  store.set("lang", next);
  page.lang = locale(next);
  redrawAll();
  document.dispatchEvent(new CustomEvent("kk:lang"));
  await gradioLang();
};
/* Every drawn part in the new language; what is typed or ticked in one and not sent yet stays. */
function redrawAll() {
  const fields = root =>
    [...root.querySelectorAll("input[id], textarea[id], select[id]")].filter(
      e => e.type !== "file"
    );
  for (const name of Object.keys(live)) {
    const before = new Map(fields(live[name].root).map(e => [e.id, [e.value, e.checked]]));
    draw(name);
    for (const e of fields(live[name].root))
      if (before.has(e.id)) [e.value, e.checked] = before.get(e.id);
  }
}
/* Gradio's own strings. It reads navigator.language before anything of ours runs, but its loader
   module exports changeLocale under that very name. No such export: the widgets keep the
   browser's language and nothing else breaks. */
async function gradioLang() {
  const core = performance
    .getEntriesByType("resource")
    .map(e => e.name)
    .find(n => /\/core-[\w-]+\.js$/.test(n));
  try {
    (await import(core)).changeLocale(locale(lang));
    await new Promise(requestAnimationFrame);
    nameGroups();
  } catch (e) {
    console.info("Kaikou: the widgets keep their language", e.message);
  }
}
acts.lang = b => setLang(b.dataset.v);

const dark = matchMedia("(prefers-color-scheme: dark)");
export const themeNow = () =>
  firstOf(["system", "light", "dark"], query.get("theme"), store.get("theme")) || "system";
export const paintTheme = () => {
  const on = themeNow() === "dark" || (themeNow() === "system" && dark.matches);
  document.body?.classList.toggle("dark", on);
  page.style.colorScheme = on ? "dark" : "light";
  document.dispatchEvent(new CustomEvent("kk:theme"));
};
export const setTheme = v => {
  query.delete("theme");
  store.set("theme", v);
  paintTheme();
  draw("header");
  document.dispatchEvent(new CustomEvent("kk:themed"));
};
acts.theme = () =>
  setTheme(
    {
      system: "light",
      light: "dark",
      dark: "system"
    }[themeNow()]
  );
dark.addEventListener("change", paintTheme);

export const paintMotion = () => {
  page.toggleAttribute("data-still", store.get("motion") === "less");
};
export const calm = () =>
  store.get("motion") === "less" || matchMedia("(prefers-reduced-motion: reduce)").matches;

/* Gradio 6.31 gives every radio its own name, its fieldset no legend and its accordion no
   aria-expanded: supply them. Names it leaves in English or in the language of the first load are
   said again. */
export function nameGroups() {
  document.querySelectorAll("fieldset.kk-seg").forEach(f => {
    const s = f.querySelector(":scope > span");
    if (s) put(f, "aria-label", s.textContent);
  });
  name("#kk-speed button", "adv.reset");
  name("#kk-speed input[type=number]", "adv.speed");
  name("#kk-speed input[type=range]", "adv.speed");
  // labels of tabs that were never opened do not follow changeLocale: rewrite the text node
  // Svelte owns, never replace it
  document.querySelectorAll("#kk-tabs [role=tab][aria-controls]").forEach(b => {
    const s = t("tab." + tabOf(b));
    if (b.firstChild && b.firstChild.data !== s) b.firstChild.data = s;
  });
  document.querySelectorAll(".kk-adv > button").forEach(b => {
    const isOpen = getComputedStyle(b.nextElementSibling).display !== "none";
    put(b, "aria-expanded", String(isOpen));
  });
}
const name = (q, key) => {
  const el = document.querySelector(q);
  if (el) put(el, "aria-label", t(key));
};
const put = (el, k, v) => {
  if (el.getAttribute(k) !== v) el.setAttribute(k, v);
};
document.addEventListener("click", e => {
  if (e.target.closest?.(".kk-adv > button, [role=tab]")) requestAnimationFrame(nameGroups);
});
// Gradio mounts widgets late and again: name them whenever something arrives, but not for the
// bar's own ticking
let due = 0;
new MutationObserver(list => {
  if (!due && list.some(m => !m.target.closest?.("#kk-player, .kk")))
    due = requestAnimationFrame(() => {
      due = 0;
      nameGroups();
    });
}).observe(page, {
  childList: true,
  subtree: true
});
document.addEventListener("keydown", e => {
  // arrow keys move in Gradio's radio groups
  const step = {
      ArrowRight: 1,
      ArrowDown: 1,
      ArrowLeft: -1,
      ArrowUp: -1
    }[e.key],
    box = e.target.closest?.("fieldset.kk-seg");
  if (!step || !box || e.target.type !== "radio") return;
  const all = [...box.querySelectorAll("input[type=radio]:not(:disabled)")].filter(
      r => r.offsetParent || r.closest("label")?.offsetParent
    ),
    next = all[(all.indexOf(e.target) + step + all.length) % all.length];
  e.preventDefault();
  next.focus();
  next.click();
});

// the keyboard of a phone covers most of the page: only the Generate button stays of the bar
window.visualViewport?.addEventListener("resize", () => {
  page.toggleAttribute(
    "data-typing",
    visualViewport.height < screen.height * 0.6 && matchMedia("(max-width: 640px)").matches
  );
});

booting.push(() => {
  paintTheme();
  paintMotion();
  gradioLang().finally(() =>
    when(
      () => live.player && LATE.every(q => document.querySelector(q)),
      () =>
        requestAnimationFrame(() => {
          nameGroups();
          document.dispatchEvent(new CustomEvent("kk:ready"));
        })
    )
  );
});
page.lang = locale(lang);
addEventListener("DOMContentLoaded", paintTheme);
paintTheme();
