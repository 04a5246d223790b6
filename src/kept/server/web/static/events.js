// <div id="…" data-events="/events"> is replaced whenever the server says that something has changed.
import { swap } from "./swap.js";

const part = document.querySelector("[data-events]");
if (part) {
  let first = true;
  const source = new EventSource(part.dataset.events);
  source.addEventListener("message", () => {
    if (!first) swap(location.href, `#${part.id}`);
    first = false;
  });
  addEventListener("pagehide", () => source.close());
}
