// @ts-check
/* The studio's page: every script of it, and the player joined to them. */
import "./keyboard.js";
import "./address.js";
import { calm } from "./theme.js";
import "./engine_status.js";
import "./diagnostics.js";
import { goLabel } from "./speak_form.js";
import { voiceId } from "./voice_choice.js";
import "./preferences.js";
import "./clip_report.js";
import "./clip_fixes.js";
import "./clip_upload.js";
import "./recorder.js";
import "./ab_preview.js";
import { paced } from "./duration_estimate.js";
import { expected } from "./text_tools.js";
import { saveAs } from "./storage.js";
import "./style.js";
import { canContinue, continueTake, reloadTakes } from "./history.js";
import "./code_export.js";
import { stopPreview } from "./audio_preview.js";
import "./voices.js";
import "./convert.js";
import "./timing_panel.js";
import "./dictionary.js";
import "./batch.js";
import "./batch_jobs.js";
import "./models.js";
import "./api_keys.js";
import "./share_dialog.js";
import { hooks } from "../player/hooks.js";
import "../player/view.js";
import "./gradio_bridge.js";

Object.assign(hooks, {
  voiceId,
  stopPreview,
  expected,
  paced,
  saveAs,
  reloadTakes,
  canContinue,
  continueTake,
  goLabel,
  calm
});
