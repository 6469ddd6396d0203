// @ts-check
/* Inline in <head>, before any module: gives each module that the page brought along an address, so
   that none is a request of its own. Imports name a module by its path below assets. */
{
  /** @type {Record<string, string>} */
  const sources = JSON.parse(document.getElementById("kk-modules").textContent);
  const address = ([name, source]) => [
    name,
    URL.createObjectURL(new Blob([source, `\n//# sourceURL=${name}`], { type: "text/javascript" }))
  ];
  const imports = Object.fromEntries(Object.entries(sources).map(address));
  const map = Object.assign(document.createElement("script"), { type: "importmap" });
  map.textContent = JSON.stringify({ imports });
  document.currentScript.after(map);
}
