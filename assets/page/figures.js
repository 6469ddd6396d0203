/* On a phone the bar shows two of its four figures; a tap on them opens a sheet with all, each with its meaning.
   Reads the player's bar, writes nothing there but one button laid over the figures. */
(() => {
  const { t, esc } = KK;
  const ROWS = ["first", "rtf", "buf", "under"];
  const sheet = () => document.getElementById("kk-figures");
  const bar = q => KK.live.player?.root.querySelector(q);

  function build() {
    const meter = bar(".kk-meter");
    if (!meter || bar(".kk-figs")) return;
    meter.insertAdjacentHTML("afterend", '<button type="button" class="kk-figs" popovertarget="kk-figures" data-a="m.all"></button>');
    KK.translate(meter.parentElement);
    if (!sheet()) {
      bar(".kk-bar").insertAdjacentHTML("beforeend", '<div id="kk-figures" class="kk" popover></div>');
      sheet().addEventListener("beforetoggle", e => e.newState === "open" && draw());
    }
    draw();
  }
  function draw() {
    const rows = ROWS.map(k => {
      const from = bar(`[data-m=${k}]`);
      return `<div><dt>${esc(t("m." + k))}<small>${esc(t(`m.${k}.t`))}</small></dt>
        <dd class="kk-num" data-tone="${from?.dataset.tone || ""}">${from?.innerHTML ?? "–"}</dd></div>`;
    });
    sheet().innerHTML = `<h2>${esc(t("m.all"))}</h2><dl>${rows.join("")}</dl>
      <button type="button" class="kk-b2" popovertarget="kk-figures" popovertargetaction="hide">${esc(t("m.close"))}</button>`;
  }
  /* The figures tick four times a second: only their numbers are written again, so that the button below keeps its focus. */
  function tick() {
    sheet().querySelectorAll("dd").forEach((dd, i) => {
      const from = bar(`[data-m=${ROWS[i]}]`), html = from?.innerHTML ?? "–";
      if (dd.innerHTML !== html) dd.innerHTML = html;
      dd.dataset.tone = from?.dataset.tone || "";
    });
  }
  document.addEventListener("kk:ready", build);
  document.addEventListener("kk:lang", () => sheet() && draw());
  document.addEventListener("kk:player", () => {
    if (sheet()?.matches(":popover-open")) queueMicrotask(tick);
  });
})();
