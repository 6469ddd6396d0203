// @ts-check
/* The dialog that shows a take as code. */
import { acts } from "./acts.js";
import { KINDS, codeOf, isDraft } from "./code_text.js";
import { studioUrl } from "./facts.js";
import { take } from "./history.js";
import { t } from "./strings.js";
import { esc } from "./text.js";

const absoluteUrl = () => new URL(studioUrl() || "/", location.href).href.replace(/\/$/, "");

let shown = null;
function dialog() {
  let el = document.getElementById("kk-code");
  if (el) return el;
  el = Object.assign(document.createElement("dialog"), { id: "kk-code", className: "kk" });
  el.setAttribute("aria-labelledby", "kk-code-h");
  // the page's own letters and Escape are not for here
  el.addEventListener("keydown", e => e.stopPropagation());
  el.addEventListener("click", e => e.target === el && el.close()); // beside it
  document.getElementById("kk-app").append(el);
  return el;
}
function draw() {
  const code = codeOf(shown, absoluteUrl());
  dialog().innerHTML = `<div class="kk-secthead"><h2 class="kk-h2"
    id="kk-code-h">${esc(t("code.title"))}</h2><p role="status"></p>
    <button type="button" class="kk-b2" data-do="closecode">${esc(t("m.close"))}</button></div>
    <p>${esc(t(isDraft(shown) ? "code.draft" : "code.note"))}</p>${KINDS.map(
      kind => `<section aria-labelledby="kk-code-${kind}">
    <div class="kk-coderow"><h3 id="kk-code-${kind}">${esc(t(`code.k.${kind}`))}</h3><button
      type="button" class="kk-b2" data-do="copycode" data-v="${kind}"
    aria-describedby="kk-code-${kind}">${esc(t("code.copy"))}</button></div><pre
      translate="no"><code>${esc(code[kind])}</code></pre></section>`
    ).join("")}`;
}
acts.code = el => {
  shown = take(el.dataset.id);
  draw();
  dialog().showModal();
};
acts.closecode = () => dialog().close();
acts.copycode = async el => {
  const code = el.closest("section").querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    getSelection().selectAllChildren(code);
    document.execCommand("copy"); // no clipboard where the page is not served safely
  }
  dialog().querySelector("[role=status]").textContent = t("code.copied", {
    k: t(`code.k.${el.dataset.v}`)
  });
};
document.addEventListener(
  "kk:lang",
  () => shown && document.getElementById("kk-code")?.open && draw()
);
