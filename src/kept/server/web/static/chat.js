// Chat: sends a message, and shows the answer as it is written.
import { swap } from "./swap.js";

const form = document.querySelector("form[data-chat]");
if (form) start(form, document.querySelector("#answer"));

function start(form, answer) {
  const field = form.elements.text;
  const stop = form.querySelector("[data-stop]");
  form.querySelector("[data-keys]").hidden = false;
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("submit", async (event) => {
    if (event.submitter === stop) {
      event.preventDefault();
      await fetch("/chat/stop", { method: "POST", body: new URLSearchParams(new FormData(form)), redirect: "manual" });
      return;
    }
    event.preventDefault();
    if (!field.value.trim() || !stop.hidden) return;
    const body = new URLSearchParams(new FormData(form));
    const question = field.value;
    ask(answer, question);
    field.value = "";
    await follow(fetch(form.action, { method: "POST", body, headers: { Accept: "application/x-ndjson" } }));
    if (answer.querySelector(".notice.bad") && !field.value) field.value = question;
  });
  if (answer.dataset.follow) {
    answer.querySelector("[data-text]").textContent = "";
    for (const shown of answer.querySelectorAll("form")) shown.remove();
    follow(fetch("/chat/answer"));
  }
  scroll();

  // Read the lines of an answer, then show the conversation as the server has it.
  async function follow(request) {
    stop.hidden = false;
    try {
      const response = await request;
      if (!response.ok) throw new Error(await reason(response));
      for await (const line of lines(response.body)) show(answer, JSON.parse(line));
      const notices = [...answer.querySelectorAll(".notice:not(form)")];
      await swap(location.href, "#talk");
      answer.replaceChildren(...notices);
    } catch (error) {
      show(answer, { type: "error", text: error.message || "The server cannot be reached." });
    } finally {
      stop.hidden = true;
      scroll();
      field.focus();
    }
  }
}

async function reason(response) {
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return page.querySelector("main h1")?.textContent ?? `The server answered ${response.status}.`;
}

async function* lines(body) {
  let rest = "";
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}

function ask(answer, question) {
  const said = element("p", "line user said", question);
  const reply = element("div", "line assistant", "");
  reply.append(element("p", "said busy", ""));
  reply.firstChild.dataset.text = "";
  answer.replaceChildren(said, reply);
  scroll();
}

function show(answer, event) {
  const text = answer.querySelector("[data-text]");
  if (event.type === "delta" && text) {
    const near = innerHeight + scrollY > document.body.scrollHeight - 80;
    text.classList.remove("busy");
    text.append(event.text);
    if (near) scroll();
  } else if (event.type === "tool" && event.status === "started") {
    text?.before(element("p", "fold", `… ${event.name}`));
  } else if (event.type === "tool" && event.status === "failed") {
    answer.append(element("p", "notice", `${event.name} did not work.`));
  } else if (event.type === "notice" || event.type === "error") {
    answer.append(element("p", event.type === "error" ? "notice bad" : "notice", event.text));
  } else if (event.type === "approval") {
    answer.append(approval(event));
    scroll();
  }
}

function approval(event) {
  const form = document.querySelector("#approval").content.cloneNode(true).querySelector("form");
  form.querySelector("p").textContent = event.text;
  form.elements.id.value = event.id;
  form.addEventListener("submit", async (submitted) => {
    submitted.preventDefault();
    const body = new URLSearchParams(new FormData(form, submitted.submitter));
    form.remove();
    await fetch(form.action, { method: "POST", body, redirect: "manual" });
  });
  return form;
}

function element(name, classes, text) {
  const node = document.createElement(name);
  node.className = classes;
  node.textContent = text;
  return node;
}

function scroll() {
  scrollTo({ top: document.body.scrollHeight });
}
