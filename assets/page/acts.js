// @ts-check
/* What a press does: data-do="name" on an element calls acts.name. One listener on the document
   outlives every re-render. */
/** @type {Record<string, (button?: any, event?: any) => any>} */
export const acts = {};
document.addEventListener("click", e => {
  const b = e.target.closest?.("[data-do]");
  if (b && !b.disabled) acts[b.dataset.do]?.(b, e);
});
