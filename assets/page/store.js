// @ts-check
/* What this browser remembers of the page, and what its address asks for. */
export const store = {
  get: k => {
    try {
      return localStorage.getItem("kk." + k);
    } catch {
      return null;
    }
  },
  set: (k, v) => {
    try {
      localStorage.setItem("kk." + k, v);
    } catch {
      /* private mode: nothing is remembered */
    }
  }
};
export const query = new URLSearchParams(location.search);
