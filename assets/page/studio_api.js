// @ts-check
/* One question to a route of the studio. Blind to what is asked, and to where it is shown. */
import { studioUrl } from "./facts.js";
import { lang, t } from "./strings.js";

/* What it answered, or {error, param}: the sentence, and the field that it is about. */
export async function askStudio(method, path, body = null) {
  try {
    const r = await fetch(studioUrl() + path, {
      method,
      body: body && JSON.stringify(body),
      cache: "no-store",
      headers: {
        "Accept-Language": lang,
        ...(body ? { "Content-Type": "application/json" } : {})
      }
    });
    if (r.status === 204) return {};
    const told = await r.json().catch(() => ({}));
    return r.ok ? told : { error: told.error?.message || t("err.net"), param: told.error?.param };
  } catch {
    return { error: t("err.net") };
  }
}
