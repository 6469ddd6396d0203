"""What the page's modules export, for tests and benchmarks to ask.

The page itself has no name in common for its scripts: this imports the very modules that it runs,
and finds each exported name among them.
"""

# An init script of a page: from DOMContentLoaded on `KK.name` is what a module exports as `name`.
# The studio's page names its modules in an import map, that of a demo link fetches its files.
EXPORTS = """addEventListener("DOMContentLoaded", async () => {
  const map = document.querySelector("script[type=importmap]"),
    files = [...document.querySelectorAll("link[rel=modulepreload][href*='/tts/static/']")];
  const names = map ? Object.keys(JSON.parse(map.textContent).imports) : files.map(l => l.href);
  const modules = await Promise.all(names.map(name => import(name)));
  window.KK = new Proxy({}, { get: (_, name) => modules.find(m => name in m)?.[name] });
});"""
