// @ts-check
/* The page's language and its sentences. ?lang= wins for one visit, then what was chosen here. */
import { facts, strings } from "./facts.js";
import { query, store } from "./store.js";
import { fill, firstOf } from "./text.js";

export let lang =
  firstOf(
    ["zh", "en"],
    query.get("lang")?.slice(0, 2).toLowerCase(),
    store.get("lang"),
    facts.lang,
    (navigator.language || "zh").slice(0, 2)
  ) || "en";
/* From now on; whoever calls this draws anew what is on the page. */
export const useLanguage = next => {
  lang = next;
};
/* The sentence of a key. */
export const t = (key, vars = {}, language = lang) => fill(strings[language][key] ?? key, vars);
/* A sentence that came from Python in both languages. */
export const said = two => (two ? two[lang] || two.en || "" : "");
