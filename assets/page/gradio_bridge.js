// @ts-check
/* What Gradio calls by name: the templates of webui/ui/html_part.py and the `js=` of its listeners
   are strings, which import nothing. The page's only global. */
import { acts } from "./acts.js";
import { restored } from "./form_values.js";
import { mount } from "./parts.js";
import { setPreference, setPrivacy, settingsNow } from "./preferences.js";
import { rememberForm, saveVoice, speak } from "./speak_form.js";
import { setLang, setTheme } from "./theme.js";

window.kaikou = {
  mount,
  dice: () => acts.dice(),
  saveVoice,
  speak,
  restored,
  rememberForm,
  setLang,
  setTheme,
  setPreference,
  setPrivacy,
  settingsNow
};
