// @ts-check
/* Saved and included voices: the picker in the voice card and the grid of the library. One list,
   drawn twice. */
import { acts } from "./acts.js";
import { addressOf, drawTitle, places, setAddress } from "./address.js";
import { playVoice, sounding } from "./audio_preview.js";
import { batchVoices } from "./batch.js";
import { toast } from "./engine_status.js";
import { studioUrl } from "./facts.js";
import { choose, isSeen, setField, setMode, tab, when } from "./fields.js";
import { ico } from "./icons.js";
import { draw, live, parts } from "./parts.js";
import { shareCard } from "./share_dialog.js";
import { store } from "./store.js";
import { lang, t } from "./strings.js";
import { askStudio } from "./studio_api.js";
import { esc } from "./text.js";
import {
  noClip,
  offered,
  pick,
  source,
  useVoice,
  voiceId,
  voiceName,
  voices
} from "./voice_choice.js";

const query = {
  picker: "",
  voices: ""
};
const ui = {
  edit: "", // the voice being renamed
  ask: "", // the voice whose deletion is asked about
  at: "", // the voice that the page's address names
  is_new: false // whether nobody was led to it yet
};
const match = (v, q) =>
  !q ||
  [v.name, v.name_zh, v.language, v.transcript].some(s =>
    (s || "").toLowerCase().includes(q.toLowerCase())
  );
const tongue = l => {
  try {
    return new Intl.DisplayNames([lang === "zh" ? "zh-CN" : "en"], {
      type: "language"
    }).of(l);
  } catch {
    return l;
  }
};
const line = v =>
  v.sample === false
    ? t("vo.model")
    : [
        v.language && tongue(v.language),
        t("vo.sec", {
          d: (+v.duration_s).toFixed(1)
        })
      ]
        .filter(Boolean)
        .join(" · ");
const tag = v => `<span class="kk-tag">${esc(t(v.starter ? "vo.starter" : "vo.mine"))}</span>`;
const playb = v =>
  v.sample === false
    ? ""
    : `<button type="button" class="kk-iconb" data-do="playvoice" data-id="${esc(v.id)}"
      aria-label="${esc(t("bar.play") + " " + voiceName(v))}">${ico(
        sounding(v.id, "voice") ? "pause" : "play"
      )}</button>`;
const face = v => `<span class="kk-face" aria-hidden="true">${esc([...voiceName(v)][0])}</span>`;
/* One voice to choose. act: what a press does; on: chosen; stop: the one that Tab reaches. */
export const voiceRow = (v, act, on, stop, told = line(v), mark = tag(v)) =>
  `<div class="kk-pickrow"><button type="button" role="radio" class="kk-pick" aria-checked="${on}"
    tabindex="${stop ? 0 : -1}"
      data-do="${act}" data-id="${esc(v.id)}">${face(v)}<span><b>${esc(voiceName(v))}</b>${mark}
      <small class="kk-num">${esc(told)}</small></span></button>${playb(v)}</div>`;
const search = (where, n) =>
  n > 5 || query[where]
    ? `<label class="kk-search">${ico("search", 16)}<input type="search" data-search="${where}"
      id="kk-search-${where}"
      value="${esc(query[where])}" placeholder="${esc(t("vo.search"))}"
        aria-label="${esc(t("vo.search"))}"></label>`
    : "";
const none = q => `<p class="kk-empty">${esc(q ? t("vo.none", { q }) : t("vo.empty"))}</p>`;

parts.picker = (root, data) => {
  if (data?.saved) {
    live.picker.data = data.list;
    saved(data.saved);
    return;
  }
  const preset = noClip(),
    all = offered(),
    list = all.filter(v => match(v, query.picker)),
    now = preset || source() === "saved" ? voiceId() : null;
  const at = Math.max(
    0,
    list.findIndex(v => v.id === now)
  );
  root.innerHTML =
    `<div class="kk kk-picker">${search("picker", all.length)}` +
    (list.length
      ? `<div class="kk-picklist" role="radiogroup"
        aria-label="${esc(t(preset ? "mode.preset" : "voice.saved"))}">` +
        list.map((v, i) => voiceRow(v, "use", v.id === now, i === at)).join("") +
        "</div>"
      : none(query.picker)) +
    "</div>";
  document.documentElement.toggleAttribute("data-nostarters", !voices().some(v => v.starter));
  ["voices", "title_voice", "health", "target"].forEach(n => live[n] && draw(n));
  batchVoices();
};
/* A clip became a voice: it is chosen in Saved voices, and the line under the form says so. */
function saved(id) {
  pick.saved = id;
  store.set("voice", id);
  live.need.data = {
    key: "save.done",
    tone: "ok"
  };
  draw("need");
  setField("kk-savename", "");
  draw("picker");
  choose("kk-source", "saved");
}
acts.use = b => {
  const v = voices().find(x => x.id === b.dataset.id);
  const fits = offered().some(x => x.id === v?.id),
    in_library = !!b.closest("#kk-library"); // asked now: the button is drawn anew
  if (in_library && !fits) setMode(v?.sample === false ? "preset" : "zero_shot");
  useVoice(b.dataset.id);
  if (in_library) {
    if (fits ? !noClip() : v?.sample !== false) {
      pick.saved = b.dataset.id;
      store.set("voice", b.dataset.id);
      choose("kk-source", "saved");
    }
    tab("speak");
    draw("picker");
  }
};
acts.playvoice = b => playVoice(b.dataset.id);

parts.voices = root => {
  const all = voices(),
    list = all.filter(v => match(v, query.voices));
  root.innerHTML = `<div class="kk"><div class="kk-secthead"><div><h2
    class="kk-h2">${esc(t("vo.title"))}</h2><p
      class="kk-sub">${esc(t("vo.sub"))}</p></div><button type="button" class="kk-b2"
      data-do="import">${ico("up", 16)}${esc(t("vo.import"))}</button></div>${search(
        "voices",
        all.length
      )}
    ${
      gone(all)
        ? `<p class="kk-inline" id="kk-gone" data-tone="bad" role="status"
      tabindex="-1">${esc(t("ad.voice"))}</p>`
        : ""
    }
    ${
      all.some(v => !v.starter) || query.voices
        ? ""
        : `<p
      class="kk-sub kk-vonone">${esc(t("vo.empty"))}</p>`
    }
    ${
      list.length ? `<ul class="kk-grid">${list.map(card).join("")}</ul>` : none(query.voices)
    }</div>`;
  arrive();
  drawTitle();
};

// ---- the voice that the page's address names --------------------------------------------------
const is_loaded = () => Array.isArray(live.picker?.data);
const gone = all => ui.at && is_loaded() && !all.some(v => v.id === ui.at);
const named = () =>
  document.getElementById(voices().some(v => v.id === ui.at) ? "kk-voiceat" : "kk-gone");
function arrive() {
  const el = ui.is_new && is_loaded() && named();
  if (!isSeen(el)) return;
  ui.is_new = false;
  el.scrollIntoView({ block: "center" });
  el.focus({ preventScroll: true });
}
places.voices = {
  show(id) {
    if (id === ui.at && !id) return;
    Object.assign(ui, { at: id, is_new: !!id });
    query.voices = "";
    draw("voices");
    if (id) when(() => isSeen(named()), arrive); // the tab is drawn a frame later
  },
  now: () => ui.at,
  name: id =>
    voices()
      .filter(v => v.id === id)
      .map(voiceName)[0] || ""
};

/* When and by whom its use was agreed to, as far as that was written down. */
function agreed(v) {
  const c = v.consent;
  if (!c) return ""; // of the studio or of a model
  const d = new Date(c.at * 1000).toLocaleDateString(lang === "zh" ? "zh-CN" : "en", {
    year: "numeric",
    month: "short",
    day: "numeric"
  });
  const by = c.way === "page" && c.who ? t("vo.agreed.by", { n: c.who }) : "";
  return `<p class="kk-num kk-agreed">${esc(
    c.way ? t("vo.agreed." + c.way, { d, n: c.who, by }) : t("vo.agreed.not")
  )}</p>`;
}

function card(v) {
  const name = voiceName(v),
    mine = !v.starter,
    id = esc(v.id);
  if (ui.ask === v.id)
    return `<li class="kk-voice"><p class="kk-ask"
      role="alert">${esc(t("vo.del.ask", { n: name }))}</p><div
      class="kk-row"><button type="button" class="kk-b2 kk-danger" data-do="dropvoice"
      data-id="${id}">${esc(t("vo.del"))}</button><button type="button" class="kk-b2"
        data-do="keepvoice"
      data-id="${id}">${esc(t("vo.keep"))}</button></div></li>`;
  const sharing = shareCard(v);
  if (sharing) return sharing;
  if (ui.edit === v.id)
    return `<li class="kk-voice"><form data-rename="${id}"><label><span>${esc(
      t("save.name")
    )}</span><input type="text" id="kk-rename"
      maxlength="60" value="${esc(v.name)}"></label><label><span>${esc(
        t("tr.label")
      )}</span><textarea id="kk-retell" rows="3" maxlength="500"
      placeholder="${esc(t("tr.place"))}">${esc(v.transcript)}</textarea></label><div
        class="kk-row"><button type="submit"
      class="kk-b2">${esc(t("vo.ok"))}</button><button type="button" class="kk-b2"
        data-do="leavevoice"
      data-id="${id}">${esc(t("pr.cancel"))}</button></div></form></li>`;
  const head = `<h3><a${ui.at === v.id ? ' id="kk-voiceat"' : ""}
    href="${esc(addressOf("voices", v.id))}">${esc(name)}</a> ${tag(v)}</h3><p
      class="kk-num">${esc(line(v))}</p>`;
  const press = (
    what,
    key,
    icon
  ) => `<button type="button" class="kk-iconb" data-do="${what}" data-id="${id}"
      aria-label="${esc(t(key) + " " + name)}">${ico(icon)}</button>`;
  const use = `<button type="button" class="kk-b2" data-do="use" data-id="${id}"
      aria-label="${esc(t("vo.use") + " " + name)}">${esc(
        t(voiceId() === v.id ? "vo.chosen" : "vo.use")
      )}</button>`;
  const save =
    v.sample === false
      ? ""
      : `<a class="kk-iconb" href="${esc(studioUrl())}/v1/audio/voices/${encodeURIComponent(
          v.id
        )}/sample"
      download="${esc(name)}.wav" aria-label="${esc(t("bar.save") + " " + name)}">${ico(
        "down"
      )}</a>`;
  const share = press("sharevoice", "dm.share", "share");
  const own = mine ? press("editvoice", "vo.edit", "pen") + press("askvoice", "vo.del", "bin") : "";
  return `<li class="kk-voice"${ui.at === v.id ? ' aria-current="true"' : ""}>${face(v)}<div>${
    head
  }${agreed(v)}</div><div class="kk-row">${use}${playb(v)}${save}${share}${own}</div></li>`;
}
const redraw = focus => {
  draw("voices");
  if (focus) live.voices.root.querySelector(focus)?.focus();
};
/* The studio's answer, or null after its sentence was shown. */
async function change(method, id, body = null) {
  const told = await askStudio(method, `/v1/audio/voices/${encodeURIComponent(id)}`, body);
  if (!told.error) return told;
  toast(told.error);
  return null;
}
function setVoices(list) {
  live.picker.data = list;
  draw("picker");
}
acts.editvoice = b => {
  ui.edit = b.dataset.id;
  ui.ask = "";
  redraw("#kk-rename");
};
acts.leavevoice = b => {
  ui.edit = "";
  redraw(`[data-do=editvoice][data-id="${CSS.escape(b.dataset.id)}"]`);
};
acts.askvoice = b => {
  ui.ask = b.dataset.id;
  ui.edit = "";
  redraw("[data-do=keepvoice]");
};
acts.keepvoice = b => {
  ui.ask = "";
  redraw(`[data-do=askvoice][data-id="${CSS.escape(b.dataset.id)}"]`);
};
acts.dropvoice = b => {
  ui.ask = "";
  if (ui.at === b.dataset.id) {
    ui.at = "";
    setAddress("voices", "", true);
  }
  change("DELETE", b.dataset.id).then(
    told => told && setVoices(voices().filter(v => v.id !== told.id))
  );
  redraw("[data-do=import]");
};
document.addEventListener("submit", e => {
  const f = e.target.closest?.("[data-rename]");
  if (!f) return;
  e.preventDefault();
  const name = f.querySelector("input").value.trim(),
    id = f.dataset.rename;
  if (name)
    change("PATCH", id, { name, transcript: f.querySelector("textarea").value }).then(
      told =>
        told &&
        setVoices(
          voices().map(v =>
            v.id === id
              ? { ...v, name: told.name, transcript: told.transcript, language: told.language }
              : v
          )
        )
    );
  acts.leavevoice({ dataset: { id } });
});
window.addEventListener(
  "keydown",
  e => {
    // before the page's own Escape, which would stop a stream
    const f = e.key === "Escape" && !e.isComposing && e.target.closest?.("[data-rename]");
    if (!f) return;
    e.stopPropagation();
    acts.leavevoice({ dataset: { id: f.dataset.rename } });
  },
  true
);
document.addEventListener("input", e => {
  const s = e.target.dataset?.search;
  if (!s) return;
  query[s] = e.target.value;
  const at = e.target.selectionStart;
  draw(s);
  const el = document.getElementById("kk-search-" + s);
  el?.focus();
  el?.setSelectionRange(at, at);
});
