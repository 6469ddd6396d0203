// @ts-check
/* How much is kept and for how long, beside the takes and in the settings; and the format that
   downloads come in. Blind to what a take is. */
import { player } from "../player/controller.js";
import { acts } from "./acts.js";
import { toast } from "./engine_status.js";
import { tab, when } from "./fields.js";
import { draw, parts } from "./parts.js";
import { store } from "./store.js";
import { lang, t } from "./strings.js";
import { esc, firstOf } from "./text.js";

const FORMATS = ["wav", "mp3", "flac", "opus"],
  FOREVER = 36500,
  LOW_BYTES = 2e9;
let storage = null; // as Takes.storage tells it

// ---- how much, and for how long ---------------------------------------------------------------
const size = b =>
  b < 1e6
    ? `${Math.ceil(b / 1e3)} KB`
    : b < 1e9
      ? `${(b / 1e6).toFixed(b < 1e7 ? 1 : 0)} MB`
      : `${(b / 1e9).toFixed(b < 1e10 ? 1 : 0)} GB`;
const amount = s =>
  t(s.n_takes === 1 ? "takes.have.1" : "takes.have", { n: s.n_takes, s: size(s.n_bytes) });
const term = s =>
  t("takes.keep." + ({ 0: "never", 1: "day", [FOREVER]: "forever" }[s.days] || "days"), {
    n: s.days
  });
/* What is about to go, or not to fit, said before it happens. */
function warning(s) {
  const left = s.max_takes - s.n_takes;
  if (s.free_bytes < LOW_BYTES) return t("takes.disk.low", { s: size(s.free_bytes) });
  return left > Math.max(1, s.max_takes / 10)
    ? ""
    : left > 0
      ? t("takes.near", { m: s.max_takes, n: left })
      : t("takes.full", { m: s.max_takes });
}
export const storageInfo = () => storage;
export const isForever = days => days >= FOREVER;
export const setStorage = s => {
  const before = storage;
  storage = s;
  draw("storage");
  if (before?.days !== s.days) document.dispatchEvent(new CustomEvent("kk:storage"));
};
export const storageLine = () => {
  if (!storage) return "";
  const warn = warning(storage);
  return (
    `<p class="kk-sub kk-num kk-storage">${esc(amount(storage))} · ${esc(term(storage))}<button
      type="button" class="kk-link"
      data-do="keepterm" aria-label="${esc(t("takes.keep.change.t"))}">${esc(
        t("takes.keep.change")
      )}</button></p>` +
    (warn ? `<p class="kk-inline" data-tone="warn" role="status">${esc(warn)}</p>` : "")
  );
};
parts.storage = root => {
  if (!storage) return;
  const lines = [
    `${amount(storage)} · ${t("takes.disk", { s: size(storage.free_bytes) })}`,
    warning(storage) || t("takes.most", { m: storage.max_takes }),
    t(storage.is_account ? "takes.of.account" : "takes.of.browser")
  ];
  root.innerHTML = lines.map(l => `<p class="kk-sub kk-num">${esc(l)}</p>`).join("");
};
acts.keepterm = () => {
  tab("settings");
  when(
    () =>
      document.querySelector("#kk-set-keep input[aria-checked=true]") ||
      document.querySelector("#kk-set-keep input"),
    el => {
      el.scrollIntoView({ block: "center" });
      el.focus();
    }
  );
};

// ---- in which format --------------------------------------------------------------------------
export const fileFormat = () => firstOf(FORMATS, store.get("format")) || "wav";
/* `where`: there may be one beside the takes and one beside the jobs. */
export const formatMenu = where =>
  `<label class="kk-format">${esc(t("fmt.label"))} <select id="kk-format-${where}">${FORMATS.map(
    f =>
      `<option value="${f}"${f === fileFormat() ? " selected" : ""}>${esc(t("fmt." + f))}</option>`
  ).join("")}</select></label>`;
document.addEventListener("change", e => {
  if (!e.target.closest?.(".kk-format")) return;
  store.set("format", e.target.value);
  document.querySelectorAll(".kk-format select").forEach(s => (s.value = e.target.value));
});
/* A link to a zip: it is asked for in the chosen format at the moment of the press. */
acts.savezip = a => {
  const url = new URL(a.href);
  url.searchParams.set("format", fileFormat());
  a.href = url;
};
/* A link to a WAV of ours. Another format is made now, and may fail: then its sentence is shown,
   and nothing is saved. */
acts.savetake = (a, e) => {
  if (fileFormat() === "wav") return;
  e.preventDefault();
  saveAs(a.href);
};
export const saveAs = wav =>
  fileFormat() === "wav" ? player.download(wav) : save(wav.replace(/\.wav$/, "." + fileFormat()));
/* A link to a table: its words are in the language of the page. */
acts.savetable = (a, e) => {
  e.preventDefault();
  save(a.href);
};
const nameIn = header =>
  decodeURIComponent(/filename(?:\*=utf-8''|=")([^;"]+)/i.exec(header)?.[1] || "");
async function save(from) {
  const answer = await fetch(from, { headers: { "Accept-Language": lang } }).catch(() => null);
  if (!answer?.ok)
    return toast((await answer?.json().catch(() => null))?.error?.message || t("err.net"));
  const url = URL.createObjectURL(await answer.blob());
  player.download(url, nameIn(answer.headers.get("content-disposition")));
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
