// @ts-check
/* Text as the page writes it: escaped, filled in, a length in words. Knows no page. */
export const esc = s => String(s ?? "").replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);

/* The first of `values` that is known: an address and a browser's memory may hold anything. */
export const firstOf = (known, ...values) => values.find(v => known.includes(v));

/* A sentence with its places filled: {n} is what `vars` holds, {n|day|days} the form that fits. */
export const fill = (sentence, vars = {}) =>
  sentence.replace(/\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g, (_, k, one, many) =>
    one === undefined ? (vars[k] ?? "") : +vars[k] === 1 ? one : many
  );

/* How long a sound is, one way everywhere: m:ss, and h:mm:ss from an hour on. */
export const clock = seconds => {
  const s = Math.round(seconds),
    h = Math.floor(s / 3600),
    two = n => String(n).padStart(2, "0");
  return h
    ? `${h}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`
    : `${Math.floor(s / 60)}:${two(s % 60)}`;
};
