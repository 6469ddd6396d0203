// @ts-check
/* Each take as a call that makes it again: curl, the OpenAI client, and the studio's own. A key is
   named, never shown. Take in, text out, and the dialog around it. */
import { acts } from "./acts.js";
import { studioUrl } from "./facts.js";
import { take } from "./history.js";
import { t } from "./strings.js";
import { esc } from "./text.js";

const KINDS = ["curl", "openai", "client"];
const absoluteUrl = () => new URL(studioUrl() || "/", location.href).href.replace(/\/$/, "");
const text = JSON.stringify; // what JSON writes for a string, Python reads as the same string
// nothing is special to a shell inside single quotes
const shell = s => `'${s.replaceAll("'", `'\\''`)}'`;
const isDraft = k => k.voice.startsWith("draft-");

/* What is not as usual, and what makes it the same sound: [name, literal] each. Seeds stay text:
   the largest are no numbers here. */
function fields(k) {
  const all = [
    ["input", text(k.text)],
    ["voice", text(isDraft(k) ? "VOICE_ID" : k.voice)],
    ["model", text(k.model || k.engine)],
    ["mode", text(k.mode)],
    ["seed", String(k.seed)]
  ];
  if (k.instruction) all.push(["instructions", text(k.instruction)]);
  if (k.language !== "auto") all.push(["language", text(k.language)]);
  if (k.speed !== 1) all.push(["speed", String(k.speed)]);
  return all;
}
const WRITE = {
  curl: k => {
    const body = [...fields(k), ["response_format", '"wav"'], ["stream", "false"]]
      .map(([n, v]) => `  "${n}": ${v}`)
      .join(",\n");
    return (
      `curl -sS --fail-with-body ${shell(absoluteUrl() + "/v1/audio/speech")} \\\n` +
      `  -H "Authorization: Bearer $KAIKOU_API_KEY" \\\n` +
      `  -H 'Content-Type: application/json' \\\n` +
      `  -o take.wav \\\n  -d ${shell(`{\n${body}\n}`)}\n`
    );
  },
  openai: k => {
    const own = ["mode", "seed", "language"],
      given = fields(k);
    const plain = given
      .filter(([n]) => !own.includes(n))
      .map(([n, v]) => `    ${n}=${v},\n`)
      .join("");
    const extra = given
      .filter(([n]) => own.includes(n))
      .map(([n, v]) => `"${n}": ${v}`)
      .join(", ");
    return (
      `import os\n\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${text(
        absoluteUrl() + "/v1"
      )}, api_key=os.environ.get("KAIKOU_API_KEY", "none"))\n` +
      `sound = client.audio.speech.create(\n${plain}    response_format="wav",\n    extra_body={${
        extra
      }, "stream": False},\n)\nsound.write_to_file("take.wav")\n`
    );
  },
  client: k => {
    const [[, input], [, voice], ...rest] = fields(k);
    return (
      `import os\n\nfrom webui.client import TTS\n\nwith TTS(${text(
        absoluteUrl()
      )}, os.environ.get("KAIKOU_API_KEY")) as tts:\n    sound = tts.synthesize(\n        ${
        input
      },\n` +
      `        ${voice},\n${rest
        .map(([n, v]) => `        ${n}=${v},\n`)
        .join("")}    )\nsound.save("take.wav")\n`
    );
  }
};
export const codeOf = k => Object.fromEntries(KINDS.map(kind => [kind, WRITE[kind](k)]));
// what was converted is a recording of the visitor's, known to no program
export const hasCode = k => k.mode !== "convert" && k.state !== "failed";

// ---- the dialog -------------------------------------------------------------------------------
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
  const code = codeOf(shown);
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
