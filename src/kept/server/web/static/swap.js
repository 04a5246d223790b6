// Replaces a part of the page by the same part of another page.

const latest = new Map();

// Show or hide that the server does not answer.
function report(isDown) {
  const notice = document.querySelector("#unreachable");
  if (notice) notice.hidden = !isDown;
}

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
    report(false);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = page.querySelector(selector);
    const target = document.querySelector(selector);
    if (!fresh || !target) return null;
    target.replaceWith(document.adoptNode(fresh));
    return document.querySelector(selector);
  } catch (error) {
    if (error.name !== "AbortError") report(true);
    return null;
  } finally {
    clearTimeout(slow);
    document.querySelector(selector)?.setAttribute("aria-busy", "false");
    if (latest.get(selector) === stop) latest.delete(selector);
  }
}
