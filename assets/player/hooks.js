// @ts-check
/* What the player asks of the page around it. These are the answers of a page that has nothing but
   the player; the studio's page puts its own in their place (page/main.js). */
const still = matchMedia("(prefers-reduced-motion: reduce)");
export const hooks = {
  /** @type {() => string | null} */
  voiceId: () => "",
  stopPreview() {},
  /* Seconds that a request will last. */
  expected: body => body.input.length / 4.6,
  paced: (seconds, _voice) => seconds,
  /** @type {((wav: string) => void) | null} */
  saveAs: null,
  reloadTakes() {},
  canContinue: _take => false,
  continueTake(_take) {},
  goLabel: () => "",
  calm: () => still.matches
};
