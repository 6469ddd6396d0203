// @ts-check
/* Gradio's fields, by their elem_id, and its tabs. */
export const field = id =>
  document.querySelector(`#${id} textarea, #${id} input:not([type=range])`);

export function setField(id, value) {
  const el = field(id);
  // Gradio draws what lies in a closed fold only when it opens
  if (!el) return document.dispatchEvent(new CustomEvent("kk:unseen", { detail: { id, value } }));
  Object.getOwnPropertyDescriptor(Object.getPrototypeOf(el), "value").set.call(el, value);
  el.dispatchEvent(
    new Event("input", {
      bubbles: true
    })
  );
}
export const chosen = (id, otherwise) =>
  // not :checked: the radios do not share a name
  document.querySelector(`#${id} input[aria-checked=true]`)?.value || otherwise;
export const choose = (id, v) => document.querySelector(`#${id} input[value="${v}"]`)?.click();
export const mode = () => chosen("kk-mode", "zero_shot"),
  setMode = v => choose("kk-mode", v);
export const when = (ready, then, left = 300) => {
  const el = ready();
  if (el) then(el);
  else if (left) requestAnimationFrame(() => when(ready, then, left - 1));
};
/* Whether it can take the focus: a page that was just shown is still hidden for a frame, where a
   theme fades. */
export const isSeen = el => !!el?.offsetParent && getComputedStyle(el).visibility === "visible";
/* Which tab a button of theirs opens: the panel that it controls has an elem_id of ours. */
export const tabOf = button => button.getAttribute("aria-controls").replace("kk-tab-", "");
export const tabButton = id => document.querySelector(`[role=tab][aria-controls=kk-tab-${id}]`);
export const tabNow = () => {
  const button = document.querySelector("#kk-tabs [role=tab][aria-selected=true]");
  return button ? tabOf(button) : "speak";
};
export const tab = id => tabButton(id)?.click();
export const toText = () => {
  if (!field("kk-text")?.offsetParent) tab("speak");
  when(
    () => field("kk-text")?.offsetParent && field("kk-text"),
    el => el.focus()
  );
};

document.addEventListener("input", e => {
  if (e.target.closest?.("#kk-text")) document.dispatchEvent(new CustomEvent("kk:text"));
});
const changed = (q, name) =>
  document.addEventListener("change", e => {
    if (e.target.closest?.(q))
      requestAnimationFrame(() => document.dispatchEvent(new CustomEvent(name)));
  });
changed("#kk-mode", "kk:mode");
changed("#kk-source", "kk:source");
