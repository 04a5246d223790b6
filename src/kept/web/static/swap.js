// Replaces a part of the page by the same part of another page.

let latest = new Map();

// Fetch a page and replace the element `selector` by the one of that page. A newer call for the same part wins.
// Returns the new element, or null if it was overtaken or the server could not be reached.
export async function swap(url, selector, options = {}) {
  latest.get(selector)?.abort();
  const stop = new AbortController();
  latest.set(selector, stop);
  const old = document.querySelector(selector);
  const slow = setTimeout(() => old?.setAttribute("aria-busy", "true"), 150);
  try {
    const response = await fetch(url, { signal: stop.signal, ...options });
    if (response.status === 401) location.reload();
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = page.querySelector(selector);
    const target = document.querySelector(selector);
    if (!fresh || !target) return null;
    target.replaceWith(document.adoptNode(fresh));
    return document.querySelector(selector);
  } catch {
    return null;
  } finally {
    clearTimeout(slow);
    document.querySelector(selector)?.setAttribute("aria-busy", "false");
    if (latest.get(selector) === stop) latest.delete(selector);
  }
}
