// Keys: / searches, j and k go through a list, Enter opens, w says why, e edits, g and a letter changes the screen.

const help = document.querySelector("#help");
const opener = document.querySelector("[data-help]");
if (opener) {
  opener.hidden = false;
  opener.addEventListener("click", () => help.showModal());
}

const items = () => [...document.querySelectorAll("[data-item]")].filter((item) => item.checkVisibility());
const current = () => document.querySelector("[data-item].at");

function move(step) {
  const all = items();
  if (!all.length) return;
  const at = all.indexOf(current());
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + step))];
  current()?.classList.remove("at");
  next.classList.add("at");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("[data-open]")?.focus({ preventScroll: true });
}

function focusSearch() {
  const field = document.querySelector('input[type="search"]');
  if (!field) return void (location.href = "/");
  field.focus();
  field.select();
}

function toggleWhy() {
  const why = (current() ?? document).querySelector("details.why");
  if (why) why.open = !why.open;
}

const actions = {
  "/": focusSearch,
  "?": () => help.showModal(),
  j: () => move(1),
  k: () => move(-1),
  w: toggleWhy,
  e: () => document.querySelector("[data-edit]")?.click(),
};

let goes = false;

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.matches("input, textarea")) return event.target.blur();
  const writes = event.target.matches("input, textarea, select");
  if (event.ctrlKey || event.metaKey || event.altKey || writes || help?.open) return;
  if (goes) {
    goes = false;
    const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
    return;
  }
  goes = event.key === "g";
  if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
});
