/** The contract of ledgers over a SQLite client that not every runtime has. Bun runs this file as it is. */

import { sqliteLedger, type SqliteConnection } from "../../src/toolkit/ledgers/sqlite.ts";
import { ledgerConformance, whySkipped } from "../../src/testing/ledger-conformance.ts";

interface OpenConnection extends SqliteConnection {
  close(): void;
}
type Client = new (file: string) => OpenConnection;

/** Runs every case; answers how many held or were skipped, and what was wrong with the others. */
export async function conform(
  name: "bun:sqlite" | "node:sqlite",
  file: string,
): Promise<{ readonly held: number; readonly skipped: number; readonly wrong: readonly string[] }> {
  // By a variable: neither the compiler nor a runtime without it looks for the module.
  const clients = (await import(name)) as Readonly<Record<string, Client>>;
  const Database = clients["Database"] ?? clients["DatabaseSync"];
  if (Database === undefined) throw new Error(`${name} has no connections`);
  const connections: OpenConnection[] = [];
  const connect = (): OpenConnection => {
    const connection = new Database(file);
    connection.exec("PRAGMA synchronous = off");
    connections.push(connection);
    return connection;
  };
  connect().exec("CREATE TABLE effects (id INTEGER PRIMARY KEY, text TEXT)");
  const bind = (text: string): never[] => [text] as unknown as never[];
  const wrong: string[] = [];
  let skipped = 0;
  for (const one of ledgerConformance) {
    const { title, run } = one;
    if (
      whySkipped(
        one,
        sqliteLedger(() => connect()),
      ) !== undefined
    ) {
      skipped += 1;
      continue;
    }
    try {
      await run<OpenConnection>({
        async open() {
          const ledger = sqliteLedger(() => connect());
          await ledger.migrate();
          return ledger;
        },
        async write(tx, text) {
          tx.prepare("INSERT INTO effects (text) VALUES (?)").run(...bind(text));
        },
        async read() {
          const rows = connect().prepare("SELECT text FROM effects ORDER BY id").all?.();
          return (rows as readonly { readonly text: string }[]).map(({ text }) => text);
        },
      });
    } catch (error) {
      wrong.push(`${title}: ${error instanceof Error ? error.stack : String(error)}`);
    }
  }
  for (const connection of connections) connection.close();
  return { held: ledgerConformance.length - skipped - wrong.length, skipped, wrong };
}

const [, script = "", name, file] = process.argv;
if (script.endsWith("conform.ts") && file !== undefined)
  console.log(JSON.stringify(await conform(name === "node:sqlite" ? name : "bun:sqlite", file)));
