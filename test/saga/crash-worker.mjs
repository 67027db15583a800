/**
 * One process of the crash suite of sagas: `node crash-worker.mjs <task as JSON>`. It starts sagas and stands still at one moment
 * of each, until it is killed or stopped; or it runs what others have left behind. See crash-kit.ts.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { writeSync } from "node:fs";
import { setFailpoint } from "../../dist/base/failpoint.js";
import { postgresLedger } from "../../dist/toolkit/ledgers/postgres.js";
import { sqliteLedger } from "../../dist/toolkit/ledgers/sqlite.js";
import { createSagas, defineSaga } from "../../dist/toolkit/saga.js";

const { database, file, remoteFile, host, leaseMs, task } = JSON.parse(process.argv[2] ?? "{}");
const say = (line) => writeSync(1, `${line}\n`);
// One order over all processes of a machine.
const now = () => process.hrtime.bigint().toString().padStart(20, "0");

async function openSqlite() {
  const { default: Database } = await import("libsql");
  // The other system has a database of its own.
  const remote = new Database(remoteFile, { timeout: 5000 });
  const all = (text, ...values) => remote.prepare(text).all(...values);
  return {
    ledger: sqliteLedger(() => new Database(file, { timeout: 100 })),
    write: async (tx, saga, what) => {
      tx.prepare("INSERT INTO effects (at, saga, what) VALUES (?, ?, ?)").run(now(), saga, what);
    },
    keyed: async (key, saga, what) => {
      const text =
        "INSERT INTO remote (at, saga, what, key) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING";
      remote.prepare(text).run(now(), saga, what, key);
    },
    plain: async (saga, what) => {
      remote.prepare("INSERT INTO remote (at, saga, what) VALUES (?, ?, ?)").run(now(), saga, what);
    },
    count: async (saga, what) =>
      all("SELECT 1 FROM remote WHERE saga = ? AND what = ?", saga, what).length,
  };
}

async function openPostgres() {
  const { default: pg } = await import("pg");
  // Each saga that stands still in a transaction has a connection.
  const max = 8 + (task.kind === "start" ? task.cells.length : 0);
  const pool = new pg.Pool({ host, user: "postgres", database: "postgres", max });
  pool.on("error", () => undefined);
  const insert = "INSERT INTO remote (at, saga, what, key) VALUES ($1, $2, $3, $4)";
  return {
    ledger: postgresLedger(pool),
    write: async (tx, saga, what) => {
      const text = "INSERT INTO effects (at, saga, what) VALUES ($1, $2, $3)";
      await tx.query(text, [now(), saga, what]);
    },
    keyed: async (key, saga, what) => {
      await pool.query(`${insert} ON CONFLICT DO NOTHING`, [now(), saga, what, key]);
    },
    plain: async (saga, what) => {
      await pool.query(insert, [now(), saga, what, null]);
    },
    count: async (saga, what) =>
      (await pool.query("SELECT 1 FROM remote WHERE saga = $1 AND what = $2", [saga, what])).rows
        .length,
  };
}

const { ledger, write, keyed, plain, count } = await (database === "sqlite"
  ? openSqlite()
  : openPostgres());

class Refused extends Error {}

const halting = new AsyncLocalStorage();

/** Called at every failpoint, and by the steps themselves. */
async function reach(point) {
  const cell = halting.getStore() ?? { at: task.halts?.find((one) => one === point) };
  cell.passed = [...(cell.passed ?? []), point];
  const isNamed = cell.at === point;
  if (isNamed) cell.seen = (cell.seen ?? 0) + 1;
  const isIt = isNamed ? cell.seen === (cell.occurrence ?? 1) : cell.nth === cell.passed.length;
  if (!isIt) return;
  say(`reached ${cell.id ?? ""}`);
  if (task.by === "stop") process.kill(process.pid, "SIGSTOP");
  else await new Promise(() => setInterval(() => undefined, 1000));
}

const retry = { attemptsMax: 20, pauseMs: 10, pauseMsMax: 50 };
const checkout = defineSaga("checkout")
  .tx("reserve", {
    run: async ({ tx, identity }) => {
      await write(tx, identity.key, "reserve");
      return { of: identity.key };
    },
    undo: ({ tx, identity, result }) =>
      write(tx, identity.key, result.of === identity.key ? "release" : "release of another"),
    retry,
  })
  .call("charge", {
    run: async ({ key, identity }) => {
      await keyed(key, identity.key, "charge");
      await reach("sent charge");
      return { receipt: key };
    },
    undo: async ({ key, identity }) => {
      await keyed(key, identity.key, "refund");
      await reach("sent refund");
    },
    retry,
  })
  .probe("label", {
    run: async ({ identity }) => {
      await plain(identity.key, "label");
      await reach("sent label");
      return { label: identity.key };
    },
    probe: async ({ identity }) => {
      const made = await count(identity.key, "label");
      const gone = await count(identity.key, "cancel");
      return made > gone ? { kind: "done", result: { label: identity.key } } : { kind: "not_done" };
    },
    undo: async ({ identity }) => {
      await plain(identity.key, "cancel");
      await reach("sent cancel");
    },
    retry,
  })
  .call("send", {
    run: async ({ key, identity, input }) => {
      await reach("before send");
      if (input.fails) throw new Refused("no such address");
      await keyed(key, identity.key, "send");
    },
    isFinal: (error) => error instanceof Refused,
    retry,
  });

/** Calls, questions and writes side by side, a pivot, and what comes after it. */
const trip = defineSaga("trip")
  .parallel("book", (group) =>
    group
      .tx("hold", {
        run: ({ tx, identity }) => write(tx, identity.key, "hold"),
        undo: ({ tx, identity }) => write(tx, identity.key, "hold off"),
        retry,
      })
      .call("flight", {
        run: async ({ key, identity }) => {
          await keyed(key, identity.key, "flight");
          await reach("sent flight");
        },
        undo: async ({ key, identity }) => {
          await keyed(key, identity.key, "flight off");
          await reach("sent flight off");
        },
        retry,
      })
      .probe("hotel", {
        run: async ({ identity }) => {
          await plain(identity.key, "hotel");
          await reach("sent hotel");
        },
        probe: async ({ identity }) => {
          const made = await count(identity.key, "hotel");
          const gone = await count(identity.key, "hotel off");
          return { kind: made > gone ? "done" : "not_done" };
        },
        undo: async ({ identity }) => {
          await plain(identity.key, "hotel off");
          await reach("sent hotel off");
        },
        retry,
      }),
  )
  .sleep("rest", 20)
  .pivot("pay", {
    run: async ({ tx, identity, input }) => {
      await write(tx, identity.key, "pay");
      if (input.fails) throw new Refused("no money");
    },
    isFinal: (error) => error instanceof Refused,
    retry,
  })
  .call("thank", {
    run: async ({ key, identity }) => {
      await keyed(key, identity.key, "thank");
      await reach("sent thank");
    },
    retry,
  })
  .signal("landed")
  .tx("file", { run: ({ tx, identity }) => write(tx, identity.key, "file"), retry });
const definitions = { checkout, trip };

const sagas = createSagas(ledger, [checkout, trip], {
  leaseMs: task.leaseMs ?? leaseMs,
  everyMs: 50,
  // Those that stand still keep their turns. A runner with few cores and short leases takes few at once.
  concurrency: task.kind === "start" ? 100 : 6,
  onError: (error) => say(`error ${error?.code ?? error?.message}`),
});
const begin = ({ id, saga = "checkout", fails }, options, joined = sagas) =>
  joined.start(definitions[saga], { scope: "crash", key: id }, { fails }, options);
const isOpen = ({ state }) => !["completed", "undone", "finished"].includes(state);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Drives all sagas to their ends, and gives each what it waits for. */
async function runAll() {
  const stopping = new AbortController();
  const running = sagas.run(stopping.signal);
  const search = { kind: "saga", state: "running", max: 1 };
  while ((await ledger.entries.scan(search)).length > 0) {
    for (const view of await sagas.list({ state: "sleeping", max: 10_000 })) {
      if (view.waiting?.for === "signal") await sagas.signal(view, "landed");
    }
    await pause(50);
  }
  stopping.abort();
  await running;
}

setFailpoint(reach);
switch (task.kind) {
  case "start": {
    // Each saga stands still at its own moment.
    const started = task.cells.map((cell) =>
      halting.run(cell, () => begin(cell, { waitMs: 60_000 }).catch((error) => error)),
    );
    const ended = await Promise.all(started);
    say(`ended ${ended.map(({ state, code }) => state ?? code).join()}`);
    break;
  }
  case "count": {
    for (const cell of task.cells) {
      await halting.run(cell, () => begin(cell));
      const find = () => sagas.find({ saga: cell.saga, scope: "crash", key: cell.id });
      for (let view = await find(); isOpen(view) && !view.waiting; view = await find())
        await pause(10);
      say(`passed ${JSON.stringify(cell.passed)}`);
    }
    break;
  }
  case "seed": {
    await ledger.transaction(async (tx) => {
      for (const cell of task.cells) await begin(cell, undefined, sagas.in(tx));
    });
    say("ended");
    break;
  }
  default:
    await runAll();
    say("ended");
}
process.exit(0);
