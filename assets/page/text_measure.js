// @ts-check
/* How much there is to speak in a text, as far as a page can tell. */
export const MARK =
  // event tags, readings; marks that order a model about, which the studio takes out
  /\[[a-zà-ǜ][a-zà-ǜ _-]*\]|\[[aeiou][a-z]\d\]|<\/?(?:strong|laughter)>|<\|[^|<>]{1,32}\|>/gi;
/* The page's own guess of what the studio will answer: c characters as typed, n sentences, raw:
   seconds by the rates of webui/text/pipeline.py. */
export const characters = text => [...text.replace(MARK, "").trim()];
export const measure = text => {
  const all = characters(text),
    plain = all.join(""),
    wide = all.filter(c => c >= "\u2e80").length,
    n = Math.max(plain ? 1 : 0, (plain.match(/[。！？!?；…]+|\.(?=\s|$)/g) || []).length);
  return { c: all.length, n, raw: wide * 0.21 + (all.length - wide) * 0.065 + n * 0.25 };
};
