import { expect, test } from "vitest";
import { ownerTransport } from "./owner-transport.ts";
import { fetchTransport } from "./transport.ts";

type Script = (url: string) => Response;

function stage(nodes: readonly string[], script: Script) {
  const asked: string[] = [];
  const sent = fetchTransport((input) => {
    const url = input instanceof Request ? input.url : input.toString();
    asked.push(url);
    return new Promise((resolve) => {
      resolve(script(url));
    });
  });
  const transport = ownerTransport(sent, nodes);
  const ask = async (url: string): Promise<number> => {
    const answer = await transport({ method: "GET", url, headers: {} }).catch(() => undefined);
    return answer?.status ?? 0;
  };
  return { asked, ask };
}

const owned = (owner: string) => (): Response =>
  new Response(null, { status: 204, headers: { "Hapax-Owner": owner } });

test("PROTOCOL.md §24.2: the next request for the same placement goes straight to the owner, with its path and query", async () => {
  const { asked, ask } = stage(["http://n1/", "http://n2"], owned("http://n2"));
  await ask("http://n1/v1/stream/acme/orders?offset=-1");
  await ask("http://n1/v1/stream/acme/log?live=sse");
  await ask("http://n1/v1/stream/other");
  await ask("http://n1/_hapax/streams");
  expect(asked).toEqual([
    "http://n1/v1/stream/acme/orders?offset=-1",
    "http://n2/v1/stream/acme/log?live=sse",
    "http://n1/v1/stream/other",
    "http://n1/_hapax/streams",
  ]);
});

test("an owner that is not among the nodes is not asked, and neither is one of a server that is not", async () => {
  for (const [nodes, owner] of [
    [["http://n1"], "http://evil"],
    [["http://n1"], "http://n1.evil"],
    [["http://n2"], "http://n2"],
  ] as const) {
    const { asked, ask } = stage(nodes, owned(owner));
    await ask("http://n1/v1/stream/a");
    await ask("http://n1/v1/stream/a");
    expect(asked).toEqual(["http://n1/v1/stream/a", "http://n1/v1/stream/a"]);
  }
});

test("after a lost request, and after a 503, the next one goes where it was made for", async () => {
  const harms: Script[] = [
    () => {
      throw new Error("reset");
    },
    () => new Response(null, { status: 503, headers: { "Hapax-Owner": "http://n2" } }),
  ];
  for (const harm of harms) {
    let isHarmed = false;
    const { asked, ask } = stage(["http://n1", "http://n2"], (url) =>
      isHarmed && url.startsWith("http://n2") ? harm(url) : owned("http://n2")(),
    );
    await ask("http://n1/v1/stream/a");
    isHarmed = true;
    await ask("http://n1/v1/stream/a");
    expect(await ask("http://n1/v1/stream/a")).toBe(204);
    expect(asked.map((url) => url.slice(0, 9))).toEqual(["http://n1", "http://n2", "http://n1"]);
  }
});
