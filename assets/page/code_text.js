// @ts-check
/* Each take as a call that makes it again: curl, the OpenAI client, and the studio's own. A key is
   named, never shown. Take in, text out. */
export const KINDS = ["curl", "openai", "client"];
const text = JSON.stringify; // what JSON writes for a string, Python reads as the same string
// nothing is special to a shell inside single quotes
const shell = s => `'${s.replaceAll("'", `'\\''`)}'`;
export const isDraft = k => k.voice.startsWith("draft-");

/* What is not as usual, and what makes it the same sound: [name, literal] each. Seeds stay text:
   the largest are no numbers here. */
function fields(k) {
  const all = [
    ["input", text(k.text)],
    ["voice", text(isDraft(k) ? "VOICE_ID" : k.voice)],
    ["model", text(k.model || k.engine)],
    ["mode", text(k.mode)],
    ["seed", String(k.seed)]
  ];
  if (k.instruction) all.push(["instructions", text(k.instruction)]);
  if (k.language !== "auto") all.push(["language", text(k.language)]);
  if (k.speed !== 1) all.push(["speed", String(k.speed)]);
  return all;
}
const WRITE = {
  curl: (k, url) => {
    const body = [...fields(k), ["response_format", '"wav"'], ["stream", "false"]]
      .map(([n, v]) => `  "${n}": ${v}`)
      .join(",\n");
    return (
      `curl -sS --fail-with-body ${shell(url + "/v1/audio/speech")} \\\n` +
      `  -H "Authorization: Bearer $KAIKOU_API_KEY" \\\n` +
      `  -H 'Content-Type: application/json' \\\n` +
      `  -o take.wav \\\n  -d ${shell(`{\n${body}\n}`)}\n`
    );
  },
  openai: (k, url) => {
    const own = ["mode", "seed", "language"],
      given = fields(k);
    const plain = given
      .filter(([n]) => !own.includes(n))
      .map(([n, v]) => `    ${n}=${v},\n`)
      .join("");
    const extra = given
      .filter(([n]) => own.includes(n))
      .map(([n, v]) => `"${n}": ${v}`)
      .join(", ");
    return (
      `import os\n\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${text(
        url + "/v1"
      )}, api_key=os.environ.get("KAIKOU_API_KEY", "none"))\n` +
      `sound = client.audio.speech.create(\n${plain}    response_format="wav",\n    extra_body={${
        extra
      }, "stream": False},\n)\nsound.write_to_file("take.wav")\n`
    );
  },
  client: (k, url) => {
    const [[, input], [, voice], ...rest] = fields(k);
    return (
      `import os\n\nfrom webui.client import TTS\n\nwith TTS(${text(
        url
      )}, os.environ.get("KAIKOU_API_KEY")) as tts:\n    sound = tts.synthesize(\n        ${
        input
      },\n` +
      `        ${voice},\n${rest
        .map(([n, v]) => `        ${n}=${v},\n`)
        .join("")}    )\nsound.save("take.wav")\n`
    );
  }
};
/* `url`: where the studio is, with scheme and host. */
export const codeOf = (k, url) =>
  Object.fromEntries(KINDS.map(kind => [kind, WRITE[kind](k, url)]));

// what was converted is a recording of the visitor's, known to no program
export const hasCode = k => k.mode !== "convert" && k.state !== "failed";
