// @ts-check
/* The voices there are, and the one that will speak. */
import { engine } from "./engine_status.js";
import { chosen, mode } from "./fields.js";
import { draw, live } from "./parts.js";
import { store } from "./store.js";
import { lang } from "./strings.js";

export const voices = () => live.picker?.data || [];
export const voiceName = v => (lang === "zh" && v.name_zh) || v.name;
export const noClip = () => mode() === "preset";
// how to say it counts
export const isTold = () =>
  mode() === "instruct" || (mode() === "zero_shot" && !!engine().told_clones);
/* What a mode offers: presets and starters in the preset mode, everything with a recording of its
   own elsewhere; and the presets too in modes that the engine says they speak in. */
const brought = () => !!engine().preset_modes?.includes(mode());
// without it only the model's own voices speak
const hears = () => engine().modes?.includes("cross_lingual") ?? true;
export const offered = () =>
  voices().filter(v => (noClip() ? v.starter && (!v.sample || hears()) : v.sample || brought()));
// of the sample voice that stands in: switching the page's language later changes no voice
const firstLanguage = lang;
const starter = () => {
  const list = offered().filter(v => v.starter);
  return (
    known(pick.starter, list) ||
    list.find(v => !v.sample) ||
    list.find(v => v.language === firstLanguage) ||
    list[0]
  );
};
export const pick = {
  saved: store.get("voice"),
  starter: store.get("starter")
};
const known = (id, list) => list.find(v => v.id === id) || null;
export const source = () => chosen("kk-source", "new");
export const draft = () => {
  const d = live.health?.data;
  return d?.id && !d.error && !live.health.busy ? d : null;
};
/* The chosen voice: {id, draft} of a clip, a saved voice, or a starter; null when there is none.
   With no clip in, the sample voice that the empty card names stands in, so that the first click
   on a fresh page already speaks. */
export const voiceNow = () => {
  const as = v =>
    v
      ? {
          id: v.id,
          voice: v
        }
      : null;
  if (noClip()) return as(starter());
  if (source() === "saved")
    return as(known(pick.saved, offered()) || voices().find(v => !v.starter) || starter());
  const d = draft();
  if (d)
    return {
      id: d.id,
      draft: d
    };
  if (live.health?.data?.error || live.health?.busy) return null;
  return as(starter());
};
export const voiceId = () => voiceNow()?.id ?? null;
export const useVoice = id => {
  const v = known(id, voices());
  if (!v) return;
  if (v.starter) {
    pick.starter = id;
    store.set("starter", id);
  }
  if (!noClip()) {
    pick.saved = id;
    store.set("voice", id);
  }
  ["picker", "health", "title_voice", "voices"].forEach(draw);
};
/* The built-in engine has two voices, which a request names as models; left to the engine, or
   with another one, it names none. */
export const modelOf = kind =>
  ["natural", "instant"].includes(kind) && engine().engine === "builtin"
    ? { model: "builtin-" + kind }
    : {};
