// The editor: a preview while you type, Ctrl-S to save, and a question before a changed text is left.
import { swap } from "./swap.js";

const form = document.querySelector("form[data-editor]");
if (form) {
  const text = form.elements.text;
  const start = text.value;
  let sent = false;
  let timer;

  const preview = () => {
    const body = new URLSearchParams(new FormData(form));
    body.set("do", "preview");
    swap(form.action, "#preview", { method: "POST", body });
  };
  text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(preview, 500);
  });
  form.addEventListener("submit", (event) => {
    if (event.submitter?.value === "preview") {
      event.preventDefault();
      preview();
    } else {
      sent = true;
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "s" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit(form.querySelector('[value="save"]'));
    }
  });
  addEventListener("beforeunload", (event) => {
    if (!sent && text.value !== start) event.preventDefault();
  });
}
