/**
 * The page of the chat. It keeps the text and the position in the stream together, so that after a reload it goes on behind the last
 * word that it has shown.
 */

import { connect } from "hapax/client";

const KEY = "chat";
const form = document.querySelector("form");
const answer = document.querySelector("#answer");
const state = document.querySelector("#state");

const load = () => JSON.parse(sessionStorage.getItem(KEY) ?? "null");
const save = (chat) => sessionStorage.setItem(KEY, JSON.stringify(chat));

async function show(chat) {
  answer.textContent = chat.text;
  state.textContent = chat.position === undefined ? "begins" : "goes on";
  const stream = connect(new URL(chat.stream, location.href), { retry: { pauseMs: 50 } });
  for await (const { records, position } of stream
    .follow({ from: chat.position, patienceMs: Infinity })
    .batches()) {
    chat = { ...chat, text: chat.text + records.join(""), position };
    save(chat);
    answer.textContent = chat.text;
  }
  state.textContent = "done";
}

async function ask() {
  const prompt = new FormData(form).get("prompt");
  // Sent again after a lost answer, the question is the same question.
  const body = JSON.stringify({ id: crypto.randomUUID(), prompt });
  const send = () => fetch("/chat", { method: "POST", body });
  const { result } = await (await send().catch(send)).json();
  save({ stream: result.stream, text: "", position: undefined });
  await untilThere(result.stream);
  await show(load());
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  void ask();
});

/** The chat makes its stream when its alarm begins. */
async function untilThere(stream) {
  while ((await fetch(stream, { method: "HEAD" })).status === 404) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const kept = load();
if (kept !== null) {
  await untilThere(kept.stream);
  await show(kept);
}
