/* The clip on its way in: the drop zone's own checks, a file let go beside it. What is recorded is recorder.js, how it sounds listen.js. */
(() => {
  const {
    t,
    acts,
    live
  } = KK;
  const MB = 2 ** 20;

  // ---- in: a file that cannot work is refused before it travels -------------------------------------------------
  const NAMES = /\.(wav|mp3|m4a|mp4|flac|ogg|oga|opus|webm|aac|aif|aiff)$/i;
  const fault = key => ({
    error: {
      zh: KK_STRINGS.zh[key],
      en: KK_STRINGS.en[key],
      code: key
    }
  });

  const wrong = f => (f.size > KK_FACTS.max_clip_mb * MB ? "err.too_large" : !/^(audio|video)\//.test(f.type) && !NAMES.test(f.name) ?
    "err.bad_audio" : "");

  function refuse(files, e) {
    const key = files?.[0] && wrong(files[0]);
    if (!key) return;
    e.preventDefault();
    e.stopImmediatePropagation();
    if (e.target.value) e.target.value = "";
    const card = e.target.closest("#kk-src") ? "source" : "health";
    live[card].data = fault(key);
    live[card].busy = false;
    KK.draw(card);
  }
  document.addEventListener("change", e => {
    if (e.target.matches?.(":is(#kk-ref, #kk-src) input[type=file]")) refuse(e.target.files, e);
  }, true);
  document.addEventListener("drop", e => {
    if (e.target.closest?.("#kk-ref, #kk-src")) refuse(e.dataTransfer?.files, e);
  }, true);
  /* Let go beside the drop zone, a file would take the place of the page: it is the clip that was meant. What a zone takes itself is left to it. */
  const beside = e => e.dataTransfer?.types.includes("Files") && !e.defaultPrevented && !e.target.closest?.("input[type=file]");
  document.addEventListener("dragover", e => beside(e) && e.preventDefault());
  document.addEventListener("drop", e => {
    if (!beside(e)) return;
    e.preventDefault();
    const bag = new DataTransfer(), box = KK.tabNow() === "convert" ? "#kk-src" : "#kk-ref", zone = () => document.querySelector(box + " input[type=file]");
    const file = e.dataTransfer.files[0], is_full = document.querySelector(box + " audio.standard-player");
    if (!file || !["speak", "voices", "convert"].includes(KK.tabNow())) return;
    if (is_full && wrong(file)) return KK.toast(t(wrong(file))); // the clip that is there stays
    bag.items.add(file);
    const take = () => KK.when(zone, input => {
      input.files = bag.files;
      input.dispatchEvent(new Event("change", { bubbles: true }));
    });
    if (box === "#kk-src") emptied(box, take);
    else KK.newClip(() => emptied(box, take));
  });
  /* The upload of that recorder, shown and without a clip. */
  function emptied(box, then) {
    if (document.querySelector(box + " input[type=file]")) return then(); // a press on its source would clear what is said below it
    if (document.querySelector(box + " audio.standard-player")) document.querySelector(box + " .icon-button-wrapper button")?.click();
    KK.when(() => document.querySelector(box + " .source-selection button"), b => {
      b.click();
      then();
    });
  }
  KK.checking = () => {
    KK.tape.after(); // whatever came in, nothing waits to go on any more
    KK.listen.stop();
    live.health.busy = true;
    live.health.data = null;
    live.need.data = null;
    ["health", "need", "fit"].forEach(KK.draw);
    document.documentElement.dataset.clip = "in";
  };
  KK.cleared = () => {
    if (KK.tape.goesOn()) return; // only the recorder is made free: the clip stays
    KK.listen.stop();
    live.health.busy = false;
    live.health.data = null;
    live.need.data = null;
    ["health", "need", "title_voice", "fit"].forEach(KK.draw);
  };

  KK.newClip = then => {
    if (!document.querySelector("#kk-voice")?.offsetParent) KK.tab("speak");
    document.documentElement.dataset.voice = "open";
    KK.draw("title_voice");
    if (KK.noClip()) KK.setMode("zero_shot");
    if (KK.source() !== "new") KK.choose("kk-source", "new");
    then();
  };
  acts.otherclip = () => KK.newClip(() => {
    KK.tape.after();
    document.querySelector("#kk-ref [aria-label=\"" + CSS.escape(t("ref.clear")) + "\"]")?.click();
    KK.when(() => document.querySelector("#kk-ref .source-selection button"), b => {
      b.click();
      KK.when(() => document.querySelector("#kk-ref input[type=file]"), f => f.click(), 30);
    });
  });
  acts.import = acts.otherclip;
})();
