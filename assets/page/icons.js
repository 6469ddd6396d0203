// @ts-check
/* The page's icons. */
const ICONS = {
  play: '<path d="M8 5.5v13l10.5-6.5z" fill="currentColor" stroke="none"/>',
  pause: '<path d="M9 6v12M15 6v12" stroke-width="3"/>',
  stop: '<rect x="7" y="7" width="10" height="10" rx="1.5" fill="currentColor" stroke="none"/>',
  wave: '<path d="M4 10v4M8 7v10M12 4v16M16 8v8M20 10v4" stroke-width="2"/>',
  down: '<path d="M12 4v11m-4.5-4 4.5 4.5 4.5-4.5M5 20h14"/>',
  up: '<path d="M12 15.5V4.5M7.5 9 12 4.5 16.5 9M5 20h14"/>',
  pen: '<path d="M5 19h3.5L19 8.5 15.5 5 5 15.5zM13 7.5l3.5 3.5"/>',
  bin: '<path d="M5 7h14M10 4.5h4M7 7l.8 12.5h8.400L17 7M10.5 11v5M13.5 11v5"/>',
  share:
    '<circle cx="6.5" cy="12" r="2.5"/><circle cx="17" cy="6" r="2.5"/>' +
    '<circle cx="17" cy="18" r="2.5"/>' +
    '<path d="m8.800 10.8 6-3.4M8.800 13.2l6 3.4"/>',
  mic:
    '<rect x="9" y="3.500" width="6" height="11" rx="3"/>' +
    '<path d="M5.500 11.500a6.500 6.500 0 0 0 13 0M12 18v2.500"/>',
  close: '<path d="m6.500 6.500 11 11M17.500 6.500l-11 11"/>',
  search: '<circle cx="11" cy="11" r="6"/><path d="m15.5 15.5 4.5 4.5"/>',
  warn: '<path d="M12 4 2.8 19.5h18.4zM12 10v4.5M12 17.2v.1"/>',
  bad: '<circle cx="12" cy="12" r="9"/><path d="M12 7.5v5.5M12 16.2v.1"/>',
  ok: '<circle cx="12" cy="12" r="9"/><path d="m8.2 12.3 2.6 2.6 5-5.4"/>',
  star: '<path d="m12 4 2.4 5 5.4.7-4 3.8 1 5.5-4.8-2.7L7.2 19l1-5.5-4-3.8 5.4-.7z"/>',
  again: '<path d="M19.5 12a7.5 7.5 0 1 1-2.3-5.4M19.5 4v4h-4"/>',
  light:
    '<circle cx="12" cy="12" r="4"/>' +
    '<path d="M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6 7 7M17 17l1.4 1.4' +
    'M18.4 5.6 17 7M7 17l-1.4 1.4"/>',
  dark: '<path d="M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z"/>',
  system: '<rect x="3.5" y="5" width="17" height="11.5" rx="2"/><path d="M9 20h6"/>',
  code:
    '<path d="m8.500 7.500-4.500 4.500 4.500 4.500M15.500 7.500l4.500 4.500' +
    '-4.500 4.500M13.500 5l-3 14"/>',
  leave: '<path d="M10 4.5H5.500V19.5H10M14.500 8l4 4-4 4M18.500 12H9.500"/>',
  help:
    '<circle cx="12" cy="12" r="9"/><path d="M9.6 9.4' +
    'a2.5 2.5 0 1 1 3.5 2.5c-.8.4-1.1.9-1.1 1.8M12 16.6v.1"/>'
};
export const ico = (name, size = 18) =>
  `<svg class="kk-ico" style="width:${size}px;height:${size}px" viewBox="0 0 24 24"
    aria-hidden="true">${ICONS[name]}</svg>`;
