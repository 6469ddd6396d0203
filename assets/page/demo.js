// @ts-check
/* The page of a demo link: one voice, a text, the player of the studio's own page. Says what the
   link still allows and draws nothing of its own but the frame. */
import "./keyboard.js";
import { acts } from "./acts.js";
import { facts } from "./facts.js";
import { draw, live } from "./parts.js";
import { lang, said, t, useLanguage } from "./strings.js";
import { esc } from "./text.js";

const main = document.querySelector("main"),
  embedded = window.top !== window.self;
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => {
  const wish = new URLSearchParams(location.search).get("theme");
  document.body.classList.toggle("dark", wish === "dark" || (wish !== "light" && dark.matches));
  document.dispatchEvent(new CustomEvent("kk:theme"));
};
dark.addEventListener("change", paint);
paint();
document.documentElement.toggleAttribute("data-embed", embedded);
const title = () => esc(facts.title || "");
const language = () =>
  ["zh", "en"]
    .map(
      l =>
        `<button type="button" data-do="lang" data-v="${l}"
          lang="${l === "zh" ? "zh-CN" : "en"}"
            aria-pressed="${lang === l}">${l === "zh" ? "中文" : "English"}</button>`
    )
    .join("");
const words = () => {
  document.documentElement.lang = lang === "zh" ? "zh-CN" : "en";
  document.title = facts.title ? t("demo.title", { n: facts.title }) : t("app.name");
};

/* A link that is not valid any more: why, in both languages. */
function showRefusal() {
  words();
  main.innerHTML = `<div class="kk kk-card kk-guestbox"><div
    class="kk-guesthead"><h1>${esc(t("demo.over"))}</h1><div class="kk-guestlang"
      role="group">${language()}</div></div><p>${esc(said(facts.refused))}</p></div>`;
  acts.lang = b => {
    useLanguage(b.dataset.v);
    showRefusal();
  };
}

/* The voice, its text and, once they are here, the player and its bar. */
async function showVoice() {
  const until = () =>
    new Date(facts.until * 1000).toLocaleDateString(lang === "zh" ? "zh-CN" : "en", {
      year: "numeric",
      month: "short",
      day: "numeric"
    });
  main.innerHTML = `<div class="kk kk-card kk-guestbox"><div
    class="kk-guesthead"><div><h1>${title()}</h1><p class="kk-sub kk-guestabout"></p></div><div
      class="kk-guestlang" role="group"></div></div>
    <div id="kk-text"><label for="kk-guesttext"></label><textarea id="kk-guesttext" rows="3"
      maxlength="${facts.max_text}"></textarea></div><p class="kk-sub kk-guestfoot"><span
        class="kk-guestcount kk-num"></span><span class="kk-guestlabel"></span></p></div>
    <div id="kk-player"></div>`;
  const area = main.querySelector("textarea"),
    q = s => main.querySelector(s);
  area.value = (facts.sample || "").slice(0, facts.max_text);
  const count = () => {
    q(".kk-guestcount").textContent = `${[...area.value].length} / ${facts.max_text}`;
  };
  const write = () => {
    words();
    q(".kk-guestabout").textContent = t("demo.about", { d: until() });
    q("label").textContent = t("demo.text", { n: facts.max_text });
    q(".kk-guestlabel").textContent = t("demo.label");
    q(".kk-guestlang").innerHTML = language();
    q(".kk-guestlang").setAttribute("aria-label", t("demo.language"));
    if (!area.value && !facts.sample) area.placeholder = t("demo.eg");
    count();
  };
  write();
  area.addEventListener("input", count);
  acts.lang = b => {
    useLanguage(b.dataset.v);
    write();
    draw("player");
    document.dispatchEvent(new CustomEvent("kk:lang"));
    q(`[data-do=lang][data-v="${b.dataset.v}"]`).focus();
  };
  const { player } = await import("../player/controller.js");
  await import("../player/view.js");
  player.canBuiltin = () => false; // the link's engine is the link's
  live.player = {
    root: q("#kk-player"),
    trigger: name => {
      if (name === "generate") player.start({ input: area.value, voice: "demo" });
    }
  };
  draw("player");
  document.documentElement.dataset.demo = "ready";
}

if (facts.refused) showRefusal();
else showVoice();
