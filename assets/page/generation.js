// @ts-check
/* From a request to the player, and our own words in its bar. */
import { player } from "../player/controller.js";
import { stopPreview } from "./audio_preview.js";
import { askEngine, engine } from "./engine_status.js";
import { settings } from "./preferences.js";

/* Once more, from a take: the same settings, whatever the form says now. */
export const regenerate = (params, at_s = null) => {
  stopPreview();
  go(params, at_s);
};
/* What the player was asked for last. */
export let lastParams = null;
let waiting = null; // pressed before the engine was ready: said in words, begun by itself
function go(params, at_s = null) {
  shown = null;
  waiting = null;
  if (engine().state === "starting") {
    waiting = [params, at_s];
    notice("warming");
    return askEngine(1000);
  }
  lastParams = params;
  player.start(params, at_s);
  if (!settings.autoplay) player.pause(true);
}
document.addEventListener("kk:engine", () => {
  if (waiting && engine().state !== "starting") go(...waiting);
});
/* Words of ours in the bar. The player repaints itself when its context wakes up; they are put
   back while it has nothing of its own to say. */
let shown = null;
export const notice = (state, info = {}) => {
  shown = {
    state,
    info
  };
  player.show(state, info);
};
export const unnotice = () => {
  shown = null;
  player.show("cold");
};
document.addEventListener("kk:player", () => {
  if (shown && ["cold", "warm"].includes(player.state)) {
    const s = shown;
    queueMicrotask(() => shown === s && player.state !== s.state && player.show(s.state, s.info));
  }
});
