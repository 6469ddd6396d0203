/* What the page's scripts share, for the type checker (scripts/form/tsconfig.json). Not served. */

type Strings = Record<string, string>;
type Values = Record<string, string | number>;

/** A part of the page that a script draws: its element, and the server's props for it. */
interface Part {
  root: HTMLElement;
  data?: any;
  ui?: any;
  trigger?: (event: string, data?: unknown) => void;
  [name: string]: any;
}

/** The one name that the scripts of the page have in common. */
interface Kaikou {
  lang: string;
  mac: boolean;
  /** The sentence of a key in the page's language, its {names} filled in. */
  t(key: string, values?: Values, language?: string): string;
  /** Text as HTML. */
  esc(text: unknown): string;
  /** An icon as SVG. */
  ico(name: string, size?: number): string;
  /** Seconds as m:ss. */
  clock(seconds: number): string;
  /** Where the studio is served. */
  root(): string;
  /** The text field of a Gradio component by its id. */
  field(id: string): any;
  parts: Record<string, (root: HTMLElement, ...rest: any[]) => void>;
  acts: Record<string, (button?: any, event?: any) => any>;
  live: Record<string, Part>;
  [name: string]: any;
}

declare var KK: Kaikou;
declare var KK_STRINGS: any;
declare var KK_PLAYER_HTML: any;
declare var KK_FACTS: any;
interface Window {
  KK: Kaikou;
  gradio_config: any;
}

// the audio thread and the worker's classic scripts
declare class AudioWorkletProcessor {
  port: MessagePort;
}
declare function registerProcessor(name: string, made: typeof AudioWorkletProcessor): void;
declare const sampleRate: number;
declare const currentFrame: number;
declare const currentTime: number;
declare function importScripts(...urls: string[]): void;

// What the page asks for by a selector, or what an event comes from, is an HTML element of the
// page's own: what a field or a button has may be read without a cast.
interface Element {
  focus(options?: FocusOptions): void;
  click(): void;
  close(): void;
  select(): void;
  showModal(): void;
  showPopover(options?: { source?: any }): void;
  setSelectionRange(start: number, end: number): void;
  open: boolean;
  title: string;
  readonly dataset: DOMStringMap;
  readonly offsetParent: Element | null;
  readonly style: CSSStyleDeclaration;
  hidden: any;
  value: any;
  checked: boolean;
  disabled: boolean;
}
interface EventTarget {
  closest(selector: string): any;
  matches(selector: string): boolean;
  readonly dataset: DOMStringMap;
  value: any;
  checked: boolean;
  id: string;
  type: string;
  selectionStart: number;
  select(): void;
  files: FileList;
  open: boolean;
  ariaValueText: string | null;
}
interface Event {
  detail: any;
  dataTransfer: DataTransfer;
  [name: string]: any;
}
interface HTMLElement {
  showPopover(options?: { source?: any }): void;
}
interface ChildNode {
  data: string;
}
interface Navigator {
  audioSession?: { type: string };
}
