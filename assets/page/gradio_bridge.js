// @ts-check
/* What Gradio calls by name: the templates of webui/ui/html_part.py and the `js=` of its listeners
   are strings, which import nothing. The page's only global. */
import { acts } from "./acts.js";
import { checking, cleared, placed } from "./clip_upload.js";
import { sourceIn, sourceOut } from "./convert.js";
import { mount } from "./parts.js";
import { setPreference, setPrivacy, settingsNow } from "./preferences.js";
import { tape } from "./recorder.js";
import { rememberForm, restored, saveVoice, speak } from "./speak_form.js";
import { setLang, setTheme } from "./theme.js";

window.kaikou = {
  mount,
  dice: () => acts.dice(),
  placed,
  tape,
  checking,
  cleared,
  saveVoice,
  speak,
  restored,
  rememberForm,
  setLang,
  setTheme,
  setPreference,
  setPrivacy,
  settingsNow,
  sourceIn,
  sourceOut
};
