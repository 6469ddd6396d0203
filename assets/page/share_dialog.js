// @ts-check
/* "Share a demo link" on the card of a voice: how long, how often, how much; then the link itself,
   the frame for another page, and its QR code. */
import { acts } from "./acts.js";
import { access } from "./api_keys.js";
import { studioUrl } from "./facts.js";
import { draw, live } from "./parts.js";
import { t } from "./strings.js";
import { esc } from "./text.js";
import { voiceName, voices } from "./voice_choice.js";

const CHOICES = {
  days: [1, 7, 30, 90],
  max_uses: [20, 200, 2000],
  max_text: [50, 100, 200, 500]
};
const fresh = () => ({
  voice: "",
  made: null,
  at: 0,
  say: "",
  form: { sample: "", days: 7, max_uses: 200, max_text: 100 }
});
let ui = fresh();

const select = name =>
  `<label><span>${esc(t("dm." + name))}</span><select id="kk-share-${name}"
    data-share="${name}">${CHOICES[name]
      .map(
        n =>
          `<option value="${n}"${ui.form[name] === n ? " selected" : ""}>${esc(
            t(`dm.${name}.n`, { n })
          )}</option>`
      )
      .join("")}</select></label>`;
const frame = (d, url) =>
  `<iframe src="${url}" title="${esc(d.title)}" width="100%" height="420"
    style="border:0;max-width:640px" loading="lazy" allow="autoplay"></iframe>`;

const host = url => new URL(url).host;
/* The link where other devices reach it, at the address that was chosen, and its QR code. Where
   none does, the code would lead a phone to itself: what to do is said instead. */
function made(d) {
  const at = d.urls[ui.at],
    url = at?.url || d.url;
  const option = (u, n) =>
    `<option value="${n}"${n === ui.at ? " selected" : ""}>${esc(
      host(u.url) + (u.interface && ` (${u.interface})`)
    )}</option>`;
  const choice =
    d.urls.length < 2
      ? ""
      : `<label><span>${esc(t("dm.at"))}</span><select
      id="kk-share-at" data-shareat>${d.urls.map(option).join("")}</select></label>`;
  const code = `${studioUrl()}/v1/demos/${d.id}/qr.svg?url=${encodeURIComponent(url)}`;
  const local = `<p class="kk-sub">${esc(t("dm.local"))}</p>${access.copyable(
    "kk-sharehow",
    t("dm.local.run"),
    t("dm.local.how")
  )}`;
  return `${choice}${access.copyable("kk-sharelink", t("dm.link"), url)}
    ${access.copyable("kk-shareframe", t("dm.frame"), frame(d, url))}${
      !at
        ? local
        : `<img class="kk-qr" src="${esc(code)}" alt="${esc(t("dm.qr.of", { h: host(url) }))}"
      width="164" height="164"><p class="kk-sub">${esc(t("dm.reach"))}</p>`
    }`;
}

/* The inside of a voice's card while it is being shared, else "". */
export const shareCard = v => {
  if (ui.voice !== v.id) return "";
  const head = `<h3>${esc(t("dm.share.of", { n: voiceName(v) }))}</h3>`,
    close = `<button type="button" class="kk-b2" data-do="shareleave"
      data-id="${esc(v.id)}">${esc(t(ui.made ? "dm.done" : "pr.cancel"))}</button>`;
  if (ui.made)
    return `<li class="kk-voice kk-share">${head}${made(ui.made)}<div
      class="kk-row">${close}</div></li>`;
  return `<li class="kk-voice kk-share"><form data-shareform="${esc(v.id)}"
    aria-label="${esc(t("dm.share"))}">${head}<label><span>${esc(t("dm.sample"))}</span><input
      type="text" id="kk-share-sample"
      data-share="sample" maxlength="200" value="${esc(ui.form.sample)}"
        placeholder="${esc(t("demo.eg"))}"></label>${Object.keys(CHOICES).map(select).join("")}
    <p class="kk-sub">${esc(t("dm.share.note"))}</p><p class="kk-inline" role="status"
      data-tone="bad">${esc(ui.say)}</p><div class="kk-row"><button
      type="submit" class="kk-b2">${esc(t("dm.make"))}</button>${close}</div></form></li>`;
};
const redraw = focus => {
  draw("voices");
  live.voices.root.querySelector(focus)?.focus();
};
acts.sharevoice = b => {
  ui = { ...fresh(), voice: b.dataset.id };
  redraw("[data-share=sample]");
};
acts.shareleave = b => {
  ui = fresh();
  redraw(`[data-do=sharevoice][data-id="${CSS.escape(b.dataset.id)}"]`);
};
document.addEventListener("input", e => {
  const name = e.target.dataset?.share;
  if (name) ui.form[name] = name === "sample" ? e.target.value : Number(e.target.value);
});
document.addEventListener("change", e => {
  if (e.target.dataset?.shareat == null) return;
  ui.at = Number(e.target.value);
  redraw("#kk-share-at");
});
document.addEventListener("submit", async e => {
  const voice = e.target.dataset?.shareform;
  if (!voice) return;
  e.preventDefault();
  const v = voices().find(x => x.id === voice),
    got = await access.ask(
      "POST",
      "/v1/demos",
      { voice, title: voiceName(v), ...ui.form },
      text => {
        ui.say = text;
      }
    );
  if (ui.voice !== voice) return;
  ui.made = got;
  redraw(got ? "#kk-sharelink" : "[data-share=sample]");
});
