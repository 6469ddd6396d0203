// @ts-check
/* The page's keys: shortcuts, and the arrows inside our own radio groups. */
import { acts } from "./acts.js";
import { toText } from "./fields.js";
import { store } from "./store.js";

const typing = el =>
  el?.matches?.(
    "textarea, select, input:not([type=range],[type=radio],[type=checkbox]), [contenteditable]"
  );
const letters = () => store.get("keys") !== "off";
document.addEventListener("keydown", e => {
  // Enter that ends a pinyin candidate is not ours
  if (e.isComposing || e.keyCode === 229) return;
  const plain = !e.ctrlKey && !e.metaKey && !e.altKey,
    free = !typing(e.target);
  const run = name => {
    e.preventDefault();
    acts[name]?.(null, e);
  };
  if ((e.ctrlKey || e.metaKey) && e.key === "Enter") return run("go");
  if (e.key === "Escape" && !document.querySelector("[popover]:popover-open, dialog[open]"))
    return acts.stop?.(null, e);
  if (!plain || !free) return;
  if (
    e.key === " " &&
    !e.target.closest?.("button, a, label, summary, [role=button], [role=tab], input")
  )
    return run("toggle");
  if (!letters()) return;
  if (e.key === "?") return run("help");
  if (e.key === "/") {
    e.preventDefault();
    toText();
  }
  if (e.key.toLowerCase() === "r") return run("record");
  if (e.key.toLowerCase() === "d") return run("dice");
});
document.addEventListener("keydown", e => {
  // arrow keys inside our own radio groups
  const r = e.target.closest?.(".kk [role=radio]"),
    step = {
      ArrowRight: 1,
      ArrowDown: 1,
      ArrowLeft: -1,
      ArrowUp: -1
    }[e.key];
  if (!r || !step) return;
  const all = [...r.closest("[role=radiogroup]").querySelectorAll("[role=radio]")],
    next = all[(all.indexOf(r) + step + all.length) % all.length];
  e.preventDefault();
  next.focus();
  next.click();
});
acts.skip = (_, e) => {
  e.preventDefault();
  toText();
};
