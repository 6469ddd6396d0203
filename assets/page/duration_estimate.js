// @ts-check
/* How long a text will last as this voice speaks here: by its own newest takes, and by the speed
   that is set. Counts no words itself. */
import { remembered } from "./form_values.js";
import { live } from "./parts.js";
import { voiceId } from "./voice_choice.js";

const TAKES = 12,
  LEAST = 0.4,
  MOST = 2.5; // how many takes tell; beyond these factors it was something else that was spoken
let known = {};

/* Seconds of sound for each second that the usual rates expect; 1 when this voice has not spoken
   yet. */
function pace(voice) {
  const takes = live.takes?.data || [];
  if (known.voice === voice && known.takes === takes) return known.factor;
  const own = takes
    .filter(k => k.voice === voice && k.state === "done" && k.mode !== "convert")
    .slice(0, TAKES);
  const sum = f => own.reduce((all, k) => all + f(k), 0),
    usual = sum(k => k.usual_s);
  const factor = usual
    ? Math.min(MOST, Math.max(LEAST, sum(k => (k.n_samples / k.sample_rate) * k.speed) / usual))
    : 1;
  known = { voice, takes, factor };
  return factor;
}
function speed() {
  // not drawn before its fold was opened
  const el = document.querySelector("#kk-speed input[type=number]");
  return +(el?.value || remembered().speed) || 1;
}
/* Seconds that `usual_s` of the usual rates last as this voice speaks. */
export const paced = (usual_s, voice) => Math.max(1, usual_s * pace(voice));
/* What `measure` or the studio gave, with the seconds of a voice. */
export const lasting = (m, voice = voiceId(), at = speed()) => ({
  ...m,
  s: m.raw ? paced(m.raw / at, voice) : 0
});
