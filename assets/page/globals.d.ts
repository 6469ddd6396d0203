/* What the page's scripts find in the browser, for the type checker (scripts/form/tsconfig.json). Not served. */

/** A part of the page that a script draws: its element, and the server's props for it. */
interface Part {
  root: HTMLElement;
  data?: any;
  ui?: any;
  trigger?: (event: string, data?: unknown) => void;
  [name: string]: any;
}

interface Window {
  gradio_config: any;
  /** What assets/page/gradio_bridge.js gives to Gradio. */
  kaikou: Record<string, any>;
}

// the audio thread
declare class AudioWorkletProcessor {
  port: MessagePort;
}
declare function registerProcessor(name: string, made: typeof AudioWorkletProcessor): void;
declare const sampleRate: number;
declare const currentFrame: number;
declare const currentTime: number;

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
  readOnly: boolean;
  selectionEnd: number;
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
