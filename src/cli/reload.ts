/**
 * SIGHUP: reads the configuration file again, puts in force what a running server can change, and says what it cannot. A file
 * with a mistake changes nothing. Without a file nothing listens, and SIGHUP ends the process as it ends any other.
 */

import type { Invocation } from "./command.ts";
import { type LoadedConfiguration, loadFrom, type Setting, showValue } from "./configuration.ts";
import type { Context, RunningServer } from "./context.ts";
import { CommandFailure } from "./failure.ts";
import type { LogLevel } from "../streams/log.ts";
import type { ServeLog } from "./serve-log.ts";

export interface Reloader {
  /** From now on the server runs. A signal that came before is heeded now. */
  begin(server: RunningServer): void;
  forget(): void;
}

export function createReloader(
  invocation: Invocation,
  context: Context,
  { file, settings }: LoadedConfiguration,
  journal: ServeLog,
): Reloader {
  if (file === undefined) return { begin: () => undefined, forget: () => undefined };
  let inForce = settings;
  let running: RunningServer | undefined;
  let isAsked = false;
  let isBusy = false;

  // One after the other. Signals that come meanwhile are one more reload.
  async function run(): Promise<void> {
    if (isBusy || running === undefined) return;
    isBusy = true;
    while (isAsked) {
      isAsked = false;
      inForce = await reload(
        { invocation, context, journal, path: file?.path ?? "" },
        running,
        inForce,
      );
    }
    isBusy = false;
  }

  const forget = context.onReload(() => {
    isAsked = true;
    void run();
  });
  return {
    begin(server) {
      running = server;
      void run();
    },
    forget,
  };
}

interface Reloading {
  readonly invocation: Invocation;
  readonly context: Context;
  readonly journal: ServeLog;
  readonly path: string;
}

/** Answers the settings in force afterwards. Never rejects: the server goes on with what it has. */
async function reload(
  { invocation, context, journal, path }: Reloading,
  server: RunningServer,
  inForce: readonly Setting[],
): Promise<readonly Setting[]> {
  const say = (line: string, level: LogLevel = "info"): void => {
    journal.note(`SIGHUP: ${line}`, level);
  };
  try {
    const wanted = await loadFrom(invocation, context, path);
    const changed = new Set<string>(server.reload(wanted.options).changed);
    const { next, live, waiting } = compare(inForce, wanted.settings, changed);
    if (live.length > 0) say(`in force now: ${live.join(", ")}`);
    if (waiting.length > 0) say(`NOT IN FORCE, needs a restart: ${waiting.join(", ")}`, "warn");
    if (live.length + waiting.length === 0) say(`${path} changes nothing`);
    return next;
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const advice = error instanceof CommandFailure ? error.advice : [];
    const lines = [`NOTHING WAS CHANGED: ${message}`, ...advice.map((line) => `  ${line}`)];
    say(lines.join("\n"), "error");
    const time = new Date(context.nowMs()).toISOString();
    const act = { time, act: "configuration.reload", outcome: "refused" } as const;
    journal.onAudit({ ...act, details: { file: path } });
    return inForce;
  }
}

function compare(
  inForce: readonly Setting[],
  wanted: readonly Setting[],
  changed: ReadonlySet<string>,
) {
  const live: string[] = [];
  const waiting: string[] = [];
  const next = inForce.map((old, index) => {
    // Both lists are made from one table, in its order.
    const setting = wanted[index] ?? old;
    if (JSON.stringify(old.value) === JSON.stringify(setting.value)) return old;
    const [from, to] = [showValue(old, inForce), showValue(setting, wanted)];
    const isLive = changed.has(setting.member);
    (isLive ? live : waiting).push(`${setting.member}=${to} (${isLive ? "was" : "is"} ${from})`);
    return isLive ? setting : old;
  });
  return { next, live, waiting };
}
