/** What idempotency keys cost a request. */

import { fork } from "node:child_process";
import { Agent, request as send } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Counter } from "./counting.mjs";
import { compare, rateOf } from "./ledger-once.mjs";

async function startApi(kind, folder, ...options) {
  const path = fileURLToPath(new URL("ledger-server.mjs", import.meta.url));
  const child = fork(path, [kind, join(folder, `${[kind, ...options].join("-")}.db`), ...options]);
  const told = () =>
    new Promise((resolve, reject) => {
      child.once("message", resolve);
      child.once("exit", (code) => reject(new Error(`the API ended with code ${code}`)));
    });
  const { port } = await told();
  const counts = () => {
    const answer = told();
    child.send("counts");
    return answer;
  };
  return { port, counts, stop: () => child.disconnect() };
}

function post(agent, port, key) {
  const body = '{"cents":100}';
  const headers = { "Content-Type": "application/json", "Content-Length": body.length };
  headers["Idempotency-Key"] = `"${key}"`;
  return new Promise((resolve, reject) => {
    const options = { agent, port, method: "POST", path: "/payments", headers };
    const request = send({ ...options, host: "127.0.0.1" }, (response) => {
      response.resume();
      response.once("end", () => {
        if (response.statusCode === 201) resolve();
        else reject(new Error(`the API answered ${response.statusCode}`));
      });
    });
    request.once("error", reject);
    request.end(body);
  });
}

export async function measureHttp(folder, { calls, width, rounds, warmUpCalls = 0 }) {
  const agent = new Agent({ keepAlive: true, maxSockets: width });
  const apis = { bare: await startApi("bare", folder), keyed: await startApi("keyed", folder) };
  const round = (api, part) => (number) =>
    rateOf(calls, width, (index) => post(agent, api.port, `${part}-${number}-${index}`));
  try {
    for (const api of Object.values(apis))
      await rateOf(warmUpCalls, width, (index) => post(agent, api.port, `warm-${index}`));
    return await compare(
      {
        "without keys": round(apis.bare, "new"),
        "with keys": round(apis.keyed, "new"),
        "with keys, repeated": round(apis.keyed, "new"),
      },
      rounds,
    );
  } finally {
    agent.destroy();
    for (const api of Object.values(apis)) api.stop();
  }
}

/** What goes to the database for a request, in a run of its own. */
export async function countHttp(folder) {
  const calls = 20;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const bare = await startApi("bare", folder, "counted");
  const keyed = await startApi("keyed", folder, "counted");
  const counted = async (api, part) => {
    await post(agent, api.port, `warm-${part}`);
    await api.counts(); // Statements are prepared once.
    for (let number = 0; number < calls; number += 1) {
      await post(agent, api.port, `counted-${number}`);
    }
    return Object.assign(new Counter(), await api.counts()).per(calls);
  };
  try {
    return {
      "without keys": await counted(bare, 1),
      "with keys": await counted(keyed, 1),
      "with keys, repeated": await counted(keyed, 2),
    };
  } finally {
    agent.destroy();
    for (const api of [bare, keyed]) api.stop();
  }
}
