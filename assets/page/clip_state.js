// @ts-check
/* The clip as the studio reported on it, and what the visitor wishes done to it. */
import { live } from "./parts.js";

export const card = () => live.health,
  data = () => live.health.data;
export const isSame = (a, b) =>
  Math.abs(a.start_s - b.start_s) < 0.05 && Math.abs(a.end_s - b.end_s) < 0.05;
export const isWhole = d => !!d.report.whole && isSame(d, d.report.whole);
export const isCleaned = (code, d) => ["noisy", "music"].includes(code) && d.clean > 0;
export const amount = d => Math.round(100 * (d.clean > 0 ? d.clean : (card().ui.amount ?? 0.6)));
