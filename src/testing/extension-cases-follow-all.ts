/** Cases of several streams over one connection. PROTOCOL.md §7.12. */

import {
  at,
  type CaseSpec,
  type CaseStream,
  CLOSES,
  ensure,
  equal,
  type HeaderMap,
  JSON_TYPE,
  type Site,
} from "./extension-case-kit.ts";

const ROUTE = "/_hapax/follow";
/** An event that does not come is missing, and the case must end. */
const EVENT_MS_MAX = 10_000;

interface FollowEvent {
  readonly id: string;
  readonly event: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** One connection. */
class Connection {
  readonly #abort = new AbortController();
  readonly #pieces: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  #text = "";

  constructor(body: ReadableStream<Uint8Array>, abort: AbortController) {
    this.#abort = abort;
    this.#pieces = body.getReader();
  }

  static async open(site: Site, query: string, headers: HeaderMap = {}): Promise<Connection> {
    const abort = new AbortController();
    const { signal } = abort;
    const response = await fetch(site.urlOf(`${ROUTE}?${query}`), { headers, signal });
    equal(response.status, 200, "the status");
    equal(response.headers.get("Content-Type"), "text/event-stream", "the type");
    if (response.body === null) throw new Error("the answer has no body");
    return new Connection(response.body, abort);
  }

  /** The next event. Undefined: the server has ended the answer. */
  async next(): Promise<FollowEvent | undefined> {
    for (;;) {
      const end = this.#text.indexOf("\n\n");
      if (end >= 0) {
        const text = this.#text.slice(0, end);
        this.#text = this.#text.slice(end + 2);
        if (!text.startsWith(":")) return eventOf(text);
        continue;
      }
      const late = setTimeout(() => {
        this.#abort.abort(new Error("no event has come"));
      }, EVENT_MS_MAX);
      const { done, value } = await this.#pieces.read();
      clearTimeout(late);
      if (done) return undefined;
      this.#text += this.#decoder.decode(value, { stream: true });
    }
  }

  /** So many events, those of one stream one after the other. */
  async take(count: number): Promise<FollowEvent[]> {
    const events: FollowEvent[] = [];
    while (events.length < count) {
      const event = await this.next();
      if (event === undefined) throw new Error(`the answer ended after ${events.length} events`);
      events.push(event);
    }
    return events.toSorted((one, other) => order(one) - order(other));
  }

  async close(): Promise<void> {
    this.#abort.abort();
    await this.#pieces.cancel().catch(() => undefined);
  }
}

const order = ({ data }: FollowEvent): number => Number(String(data["stream"]).split("/").at(-1));

function eventOf(text: string): FollowEvent {
  const fields = new Map<string, string>();
  for (const line of text.split("\n")) {
    const [, name = "", value = ""] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    const before = fields.get(name);
    fields.set(name, before === undefined ? value : `${before}\n${value}`);
  }
  const { id = "", event = "", data = "{}" } = Object.fromEntries(fields);
  return { id, event, data: JSON.parse(data) as Record<string, unknown> };
}

const from = (stream: CaseStream, offset: string | number = "-1"): string =>
  `${stream.query}&offset=${typeof offset === "number" ? at(offset) : offset}`;

async function withConnection(
  site: Site,
  query: string,
  run: (connection: Connection) => Promise<void>,
  headers?: HeaderMap,
): Promise<void> {
  const connection = await Connection.open(site, query, headers);
  try {
    await run(connection);
  } finally {
    await connection.close();
  }
}

async function lifeOf(stream: CaseStream): Promise<string> {
  return (await stream.head()).headers.get("Stream-Life") ?? "";
}

/** What an event says, without the id and the life. */
const said = ({ event, data }: FollowEvent, stream: CaseStream): unknown => {
  const { life: _, stream: path, ...rest } = data;
  equal(path, stream.path, "the stream of an event");
  return [event, rest];
};

export const followAllCases: readonly CaseSpec[] = [
  {
    title: "§7.12 each event names its stream, and says where its reader goes on",
    // The id has lives.
    needs: ["lives"],
    async run(site) {
      const [one, other] = [await site.jsonStream(), await site.jsonStream()];
      (await one.append("[1,2]")).expect(204);
      (await other.append("7")).expect(204);
      await withConnection(site, `${from(one)}&${from(other, "now")}`, async (connection) => {
        const [first, second] = await connection.take(2);
        if (first === undefined || second === undefined) throw new Error("no events");
        const facts = { offset: at(0), nextOffset: at(4), upToDate: true, records: [1, 2] };
        equal(said(first, one), ["data", facts], "the stored records");
        const none = { offset: at(2), nextOffset: at(2), upToDate: true, records: [] };
        equal(said(second, other), ["data", none], "the tail, where `now` is");
        (await other.append("8")).expect(204);
        const [live] = await connection.take(1);
        if (live === undefined) throw new Error("no event");
        const news = { offset: at(2), nextOffset: at(4), upToDate: true, records: [8] };
        equal(said(live, other), ["data", news], "what is new");
        const places = `4/${await lifeOf(one)},4/${await lifeOf(other)}`;
        equal(live.id, places, "the places of all streams");
        equal(live.data["life"], await lifeOf(other), "the life of the stream");
      });
    },
  },
  {
    title: "§7.12 a reader that comes back with the id of an event misses and repeats nothing",
    async run(site) {
      const streams = [await site.jsonStream(), await site.jsonStream(), await site.jsonStream()];
      const query = streams.map((stream) => from(stream)).join("&");
      const seen = streams.map((): unknown[] => []);
      let id = "";
      for (let round = 0; round < 4; round += 1) {
        for (const [index, stream] of streams.entries()) {
          // While no reader is there, and while one is.
          (await stream.append(`"${index}-${round}"`)).expect(204);
        }
        await withConnection(
          site,
          query,
          async (connection) => {
            const first = await connection.next();
            if (first === undefined) throw new Error("no event");
            const index = streams.findIndex(({ path }) => path === first.data["stream"]);
            seen[index]?.push(...(first.data["records"] as unknown[]));
            // The others were not seen: they come again.
            ({ id } = first);
          },
          id === "" ? {} : { "Last-Event-ID": id },
        );
      }
      await withConnection(
        site,
        query,
        async (connection) => {
          for (const { data } of await connection.take(3)) {
            const index = streams.findIndex(({ path }) => path === data["stream"]);
            seen[index]?.push(...(data["records"] as unknown[]));
          }
        },
        { "Last-Event-ID": id },
      );
      const expected = streams.map((_, index) => [0, 1, 2, 3].map((round) => `${index}-${round}`));
      equal(seen, expected, "the records of each stream");
    },
  },
  {
    title: "§7.12 what is not JSON comes as base64, byte for byte",
    async run(site) {
      const [text, json] = [await site.stream(), await site.jsonStream()];
      (await text.append("a\r\nb\n")).expect(204);
      (await json.append('[ {"a":\n1},\r\n"\\u00fc" ]')).expect(204);
      await withConnection(site, `${from(text)}&${from(json)}`, async (connection) => {
        const [first, second] = await connection.take(2);
        equal(first?.data["base64"], btoa("a\r\nb\n"), "text");
        equal(first?.data["contentType"], "text/plain", "the type");
        equal(second?.data["records"], [{ a: 1 }, "ü"], "JSON");
        equal(second?.data["contentType"], undefined, "the type of JSON");
      });
    },
  },
  {
    title: "§7.12 a stream that cannot be read is refused alone",
    // The id has lives.
    needs: ["lives"],
    async run(site) {
      const [one, missing, short, other] = [
        await site.jsonStream(),
        site.newStream(JSON_TYPE),
        await site.jsonStream(),
        await site.jsonStream(),
      ];
      const lives = ["", "", "", "9-9z"].map((life) => `life=${life}`).join("&");
      const query = `${from(one)}&${from(missing)}&${from(short, 99)}&${from(other)}&${lives}`;
      await withConnection(site, query, async (connection) => {
        const events = await connection.take(4);
        const codes = events.map(({ event, data }) => [event, data["code"], data["status"]]);
        equal(
          codes,
          [
            ["data", undefined, undefined],
            ["refused", "stream_not_found", 404],
            ["refused", "offset_beyond_tail", 410],
            ["refused", "stream_replaced", 410],
          ],
          "the events",
        );
        (await one.append("1")).expect(204);
        const live = await connection.next();
        equal(live?.data["records"], [1], "the stream that can be read");
        equal(live?.id, `2/${await lifeOf(one)},-,-,-`, "nothing more comes of the others");
      });
    },
  },
  {
    title: "§7.12 a reader of trimmed data is refused alone, and learns where the stream begins",
    needs: ["retention"],
    async run(site) {
      const [trimmed, whole] = [await site.jsonStream(), await site.jsonStream()];
      for (const record of ["1", "2"]) (await trimmed.append(record)).expect(204);
      const cut = `/_hapax/trim?${trimmed.query}&before=${at(2)}`;
      (await site.request("POST", cut)).expect(204);
      await withConnection(site, `${from(trimmed, 0)}&${from(whole)}`, async (connection) => {
        const [first, second] = await connection.take(2);
        equal(first?.data["code"], "offset_trimmed", "the code");
        equal(first?.data["earliestOffset"], at(2), "the beginning");
        equal(second?.event, "data", "the other stream");
      });
      await withConnection(site, `${from(trimmed)}&${from(whole)}`, async (connection) => {
        const [first] = await connection.take(2);
        equal(first?.data["offset"], at(2), "the beginning of what is left");
        equal(first?.data["records"], [2], "what is left");
      });
    },
  },
  {
    title: "§7.12 a stream that is closed or deleted ends alone, and the answer with the last one",
    async run(site) {
      const streams = [await site.jsonStream(), await site.jsonStream(), await site.jsonStream()];
      const [closed, deleted, last] = streams as [CaseStream, CaseStream, CaseStream];
      const query = streams.map((stream) => from(stream)).join("&");
      await withConnection(site, query, async (connection) => {
        await connection.take(3);
        (await closed.append("1", CLOSES)).expect(204);
        const end = await connection.next();
        equal([end?.data["records"], end?.data["closed"]], [[1], true], "the close");
        (await deleted.delete()).expect(204);
        equal((await connection.next())?.data["code"], "stream_not_found", "the deletion");
        (await last.append("2")).expect(204);
        const live = await connection.next();
        equal(live?.data["records"], [2], "the stream that is left");
        ensure(live?.id.startsWith("-,-,") === true, "the places of what has ended");
        (await last.append("3", CLOSES)).expect(204);
        equal((await connection.next())?.data["closed"], true, "the last close");
        equal(await connection.next(), undefined, "the end of the answer");
      });
    },
  },
  {
    title: "§7.12 an EventSource that has had everything is answered 204",
    async run(site) {
      const [one, other] = [await site.jsonStream(), await site.jsonStream()];
      for (const stream of [one, other]) (await stream.append("1", CLOSES)).expect(204);
      let id = "";
      await withConnection(site, `${from(one)}&${from(other)}`, async (connection) => {
        for (let event = await connection.next(); event !== undefined;) {
          ({ id } = event);
          event = await connection.next();
        }
      });
      equal(id, "-,-", "the last id");
      const again = `${ROUTE}?${from(one)}&${from(other)}`;
      (await site.request("GET", again, { headers: { "Last-Event-ID": id } })).expect(204);
    },
  },
  {
    title: "§7.12 a request that does not say one offset for each stream is refused",
    async run(site) {
      const [one, other] = [await site.jsonStream(), await site.jsonStream()];
      const both = `${from(one)}&${from(other)}`;
      const many = Array.from({ length: 101 }, (_, n) => `stream=/s/${n}&offset=-1`).join("&");
      const wrong = [
        "",
        one.query,
        `${both}&offset=-1`,
        `${from(one)}&${from(one)}`,
        from(one, "12"),
        `${both}&life=1-2t`,
        "stream=orders&offset=-1",
        `${both}&state-offsets=yes`,
        many,
      ];
      for (const query of wrong) {
        (await site.request("GET", `${ROUTE}?${query}`)).refused(400, "invalid_request");
      }
      for (const id of ["1", "1/a,2", "1/a,2/b,3/c", "x/a,1/b", `${at(0)},${at(0)}`]) {
        const headers = { "Last-Event-ID": id };
        const answer = await site.request("GET", `${ROUTE}?${both}`, { headers });
        answer.refused(400, "invalid_request");
      }
      const reserved = `${from(one)}&stream=/_hapax/health&offset=-1`;
      (await site.request("GET", `${ROUTE}?${reserved}`)).refused(404, "not_found");
      (await site.request("POST", `${ROUTE}?${both}`)).refused(405, "method_not_allowed");
    },
  },
];
