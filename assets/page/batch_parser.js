// @ts-check
/* From a pasted text or a file to the lines of a batch: TXT, CSV, JSONL. Text in, rows out; knows
   no page and no studio. */

const NAMES = {
  text: "text",
  input: "text",
  文本: "text",
  voice: "voice",
  音色: "voice",
  seed: "seed",
  种子: "seed",
  mode: "mode",
  模式: "mode",
  instruction: "instructions",
  instructions: "instructions",
  指令: "instructions",
  language: "language",
  speed: "speed",
  model: "model",
  模型: "model"
};
const FIELDS = ["text", "voice", "seed", "mode", "instructions", "language", "speed", "model"];

/* Rows of cells; quotes as spreadsheets write them. */
function cells(text, comma) {
  const rows = [[""]];
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i],
      row = rows.at(-1);
    if (quoted && c === '"' && text[i + 1] === '"') row[row.length - 1] += text[++i];
    else if (c === '"' && (quoted || !row.at(-1))) quoted = !quoted;
    else if (!quoted && c === comma) row.push("");
    else if (!quoted && c === "\n") rows.push([""]);
    else row[row.length - 1] += c;
  }
  return rows.filter(r => r.some(x => x.trim()));
}
const known = name => NAMES[name.trim().toLowerCase()] || "";
const heads = row => row.map(known);
const commaOf = line =>
  [",", "\t", ";"].find(c => heads(line.split(c)).includes("text") && line.includes(c));

function fromTable(text, comma) {
  const rows = cells(text, comma),
    head = heads(rows[0] || []),
    has = head.includes("text");
  const names = has ? head : ["text", "voice", "seed", "mode", "instructions"];
  return rows
    .slice(has ? 1 : 0)
    .map(r =>
      Object.fromEntries(r.map((x, i) => [names[i], x.trim()]).filter(([k, v]) => k && v !== ""))
    );
}
function fromJson(text) {
  return text
    .split("\n")
    .filter(l => l.trim())
    .map(l => {
      try {
        const told = JSON.parse(l);
        if (typeof told === "string") return { text: told };
        const said = v => String((typeof v === "object" ? v?.id : v) ?? "").trim();
        return Object.fromEntries(
          Object.entries(told)
            .map(([k, v]) => [known(k), said(v)])
            .filter(([k, v]) => k && v !== "")
        );
      } catch {
        return { problem: "json", text: l };
      }
    });
}
/* kind: the file's ending, "" for pasted text, whose first line tells. */
export const batchRows = (raw, kind = "") => {
  const text = raw.replace(/\r\n?/g, "\n"),
    first = text.trimStart().split("\n", 1)[0],
    comma = commaOf(first);
  if (["jsonl", "ndjson"].includes(kind) || (!kind && /^\{.*\}\s*$/.test(first)))
    return fromJson(text);
  if (kind === "csv" || kind === "tsv" || (!kind && comma))
    return fromTable(text, comma || (kind === "tsv" ? "\t" : ","));
  return text
    .split("\n")
    .map(l => l.trim())
    .filter(Boolean)
    .map(l => ({ text: l }));
};
/* Rows as text that `batchRows` reads: lines, or a table where they have more than a text. */
export const batchText = rows => {
  const names = batchFields(rows),
    quoted = v => (/[",\n]/.test(v) ? `"${v.replace(/"/g, '""')}"` : v);
  if (!names.length || names.join() === "text") return rows.map(r => r.text || "").join("\n");
  return [names, ...rows.map(r => names.map(f => quoted(r[f] || "")))]
    .map(r => r.join(","))
    .join("\n");
};
export const batchFields = rows => FIELDS.filter(f => rows.some(r => r[f]));
/* Bytes as spreadsheets and editors save them. Throws what TextDecoder throws. */
export const batchDecode = buffer => {
  const b = new Uint8Array(buffer),
    mark =
      b[0] === 0xff && b[1] === 0xfe
        ? "utf-16le"
        : b[0] === 0xfe && b[1] === 0xff
          ? "utf-16be"
          : "utf-8";
  try {
    return new TextDecoder(mark, { fatal: true }).decode(b);
  } catch {
    return new TextDecoder("gb18030", { fatal: true }).decode(b);
  }
};
