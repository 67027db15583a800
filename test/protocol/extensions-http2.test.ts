// PROTOCOL.md §13.8: everything that Hapax has beyond the public protocol, over HTTP/2.
import { afterAll, describe, expect, test, vi } from "vitest";
import { extensionCases } from "../../src/testing/testing.ts";
import { openHttp2 } from "../kits/http2-fetch.ts";
import { openTlsStage } from "../kits/tls-server.ts";

vi.setConfig({ maxConcurrency: 16 });

const stage = openTlsStage();
const server = await stage.start({ onAudit: () => undefined });
// One case has 257 appends at once, which is more than one connection takes.
const client = openHttp2(server.url, stage.authority.cert, 4);
vi.stubGlobal("fetch", client.fetch);

afterAll(async () => {
  client.close();
  await stage.close();
});

describe("extensions over HTTP/2", () => {
  const cases = extensionCases({ url: server.url }).toSorted(
    (one, other) => Number(other.isSlow) - Number(one.isSlow),
  );
  for (const { title, run } of cases) test.concurrent(title, run);
});

test("the suite spoke HTTP/2", () => {
  expect(client.sessions.map(({ alpnProtocol }) => alpnProtocol)).toEqual(["h2", "h2", "h2", "h2"]);
});
