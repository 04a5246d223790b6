// Search as you type, and parts of a page that refresh themselves.
import { swap } from "./swap.js";

const PAUSE_MS = 120;

for (const form of document.querySelectorAll("form[data-live]")) {
  const search = () => {
    const fields = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...fields]) if (!value) fields.delete(name);
    const url = form.getAttribute("action") + (fields.size ? `?${fields}` : "");
    history.replaceState(null, "", url);
    return swap(url, form.dataset.live);
  };
  let timer;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    search();
  });
}

// <div id="…" data-refresh="1500"> is replaced every 1.5 seconds while it has the attribute.
export function refresh(part) {
  if (!part?.dataset.refresh) return;
  setTimeout(async () => refresh(await swap(location.href, `#${part.id}`)), Number(part.dataset.refresh));
}
for (const part of document.querySelectorAll("[data-refresh]")) refresh(part);
