// @ts-check
/* The drawn parts of the page: mount() is the one door between gr.HTML and them. A re-render calls
   it again and finds the state here. */
import { t } from "./strings.js";

/** @type {Record<string, (root: HTMLElement, ...rest: any[]) => void>} */
export const parts = {}; // name -> (root, data) => void : draws
// name -> { root, data, trigger } : what is on the page now; is_own: what Python sends it is too
// old
/** @type {Record<string, Part>} */
export const live = {};
export const booting = []; // run once, when the first part is mounted
let booted = false;

export function mount(name, element, props, watch, trigger) {
  const read = () => {
    try {
      return JSON.parse(props.value || "null");
    } catch {
      return null;
    }
  };
  const last = live[name];
  live[name] = {
    root: element,
    value: props.value,
    // a re-render brings nothing new: what was changed here since stays
    data: last && last.value === props.value ? last.data : read(),
    trigger
  };
  if (!booted) {
    booted = true;
    booting.forEach(f => f());
  }
  draw(name);
  watch?.("value", () => {
    if (live[name].is_own) return; // the part has asked the studio itself since
    live[name].value = props.value;
    live[name].data = read();
    draw(name);
  }); // fires after Gradio redrew the template
}

export function draw(name) {
  const part = live[name];
  if (!part?.root.isConnected) return;
  const keep = part.root.contains(document.activeElement) ? mark(document.activeElement) : null;
  (parts[name] ?? parts[name.split("_")[0]])?.(part.root, part.data);
  translate(part.root);
  if (keep && !part.root.contains(document.activeElement))
    part.root.querySelector(keep)?.focus({
      preventScroll: true
    }); // a redraw must not drop the focus
}
const mark = el =>
  el.dataset.do
    ? `[data-do="${el.dataset.do}"]` +
      ["v", "id", "i", "code", "g"]
        .map(k => (el.dataset[k] == null ? "" : `[data-${k}="${CSS.escape(el.dataset[k])}"]`))
        .join("")
    : el.id
      ? "#" + CSS.escape(el.id)
      : null;

export function translate(el) {
  el.querySelectorAll("[data-t]").forEach(e => {
    e.textContent = t(e.dataset.t);
  });
  el.querySelectorAll("[data-a]").forEach(e => {
    e.setAttribute("aria-label", t(e.dataset.a));
  });
  el.querySelectorAll("[data-tip]").forEach(e => {
    e.title = t(e.dataset.tip);
  });
}
// to Python, by Gradio's own queue
export const send = (name, what) => live[name]?.trigger("act", what);
