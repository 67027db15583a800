/** The dead letters of a relay: events in the outbox of a database. */

import { createDeadLetters, type OutboxDeadLetter } from "../toolkit/outbox/dead-letters.ts";
import { DEFAULT_RELAY } from "../toolkit/outbox/relay-state.ts";
import type { LetterSource, ListedLetter } from "./letter-source.ts";
import { databaseFailure, openOutboxDatabase } from "./outbox-database.ts";

/** The letters of a relay in the outbox of a database: a URL of PostgreSQL, or the path of a SQLite file. */
export async function lettersOfOutbox(
  database: string,
  options: { readonly schema: string | undefined; readonly relay: string | undefined },
): Promise<LetterSource> {
  const { schema, relay = DEFAULT_RELAY } = options;
  const opened = await openOutboxDatabase(database, { directory: process.cwd(), schema });
  try {
    const letters = createDeadLetters(opened.ledger, { relay });
    return {
      label: `relay ${relay}`,
      warning: "They will never be published. This cannot be undone.",
      list: async (filter, max) =>
        (await letters.list({ ...filter, max })).map((letter) => listed(relay, letter)),
      replay: (filter) => letters.replay(filter),
      discard: (ids) => letters.discard(ids),
      failureOf: databaseFailure,
      close: () => opened.close(),
    };
  } catch (error) {
    await opened.close();
    throw error;
  }
}

/** With the payload: as text if it is, and otherwise in base64. */
function listed(relay: string, { id, event, attempts, reason }: OutboxDeadLetter): ListedLetter {
  const { topic, key, headers, payload, addedAtMs } = event;
  const bytes = Buffer.from(payload);
  const text = bytes.toString("utf8");
  const content = Buffer.from(text).equals(bytes)
    ? `"record":${JSON.stringify(text)}`
    : `"base64":"${bytes.toString("base64")}"`;
  const at = new Date(addedAtMs).toISOString();
  return { id, from: topic, key, attempts, at, reason, facts: { relay, headers }, content };
}
