/**
 * Two writers of the same name. The second one takes over with a higher epoch. The first one was only paused
 * and comes back: the server fences it, and it can write nothing more.
 *
 *   npm run build && node examples/takeover.mjs
 */

import { startNodeServer } from "hapax/node";

const server = await startNodeServer({ store: "memory", port: 0 });
const url = `${server.url}/v1/stream/jobs`;
await fetch(url, { method: "PUT", headers: { "Content-Type": "text/plain" } });

async function write(epoch, sequence, line) {
  const answer = await fetch(url, {
    method: "POST",
    headers: {
      "Content-Type": "text/plain",
      "Producer-Id": "scheduler",
      "Producer-Epoch": String(epoch),
      "Producer-Seq": String(sequence),
    },
    body: `${line}\n`,
  });
  console.log(`epoch ${epoch}, sequence ${sequence}: ${answer.status}`);
  return answer;
}

await write(0, 0, "first: started");
await write(1, 0, "second: took over");
const late = await write(0, 1, "first: I was only asleep");
const { code, help } = await late.json();
console.log(`${code}: ${help}`);
await write(1, 1, "second: done");

console.log(await (await fetch(url)).text());
await server.stop();
