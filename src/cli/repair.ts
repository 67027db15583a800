/** `hapax repair`: what can be done about damage. Acts only with --apply, and keeps the originals. */

import { isAbsolute, relative } from "node:path";
import type { CutPlan, RepairAction, RepairPlan } from "../streams/stores/file/repair.ts";
import { parseCountOption } from "./arguments.ts";
import type { Command, Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import {
  createBar,
  formatBytes,
  formatTime,
  type OpenedDirectory,
  PROGRESS_OPTION,
  withDirectory,
} from "./directory.ts";
import { CommandFailure, EXIT } from "./failure.ts";
import { countOf, createPaint, printable } from "./terminal.ts";
import { problemLine, verifyAndPrint } from "./verify.ts";

const LISTED_MAX = 100;

async function runRepair(invocation: Invocation, context: Context): Promise<number> {
  const cutText = invocation.value("cut-at-lsn");
  const range = { min: 1, max: Number.MAX_SAFE_INTEGER, fallback: 0 };
  const cutAtLsn =
    cutText === undefined ? undefined : parseCountOption("cut-at-lsn", cutText, range);
  const mayAct = invocation.has("apply");
  return withDirectory(invocation, mayAct ? "write" : "read", async (directory) => {
    const { planRepair } = await import("../streams/stores/file/repair.ts");
    const bar = createBar(invocation, context, "looking");
    const plan = await planRepair(directory.disk, cutAtLsn, bar.show);
    await bar.finish();
    const isJson = invocation.has("json");
    const text = isJson ? `${JSON.stringify({ plan })}\n` : planText(plan, cutAtLsn, context);
    await context.stdout.write(text);
    if (cutAtLsn !== undefined && plan.cut?.obstacle !== undefined) {
      throw new CommandFailure(EXIT.refused, `cannot cut at LSN ${cutAtLsn}: ${plan.cut.obstacle}`);
    }
    if (!mayAct) return plan.verification.problems === 0 ? EXIT.done : EXIT.refused;
    return apply(directory, plan, cutAtLsn, invocation, context);
  });
}

async function apply(
  directory: OpenedDirectory,
  plan: RepairPlan,
  cutAtLsn: number | undefined,
  invocation: Invocation,
  context: Context,
): Promise<number> {
  const cut = cutAtLsn === undefined ? undefined : plan.cut;
  const actions = [...plan.actions, ...(cut?.actions ?? [])];
  if (actions.length > 0) {
    const { carryOut } = await import("../streams/stores/file/repair-work.ts");
    const time = formatTime(context.nowMs());
    const story = { time, problems: plan.problems, actions, cut };
    const folder = await carryOut(directory.path, actions, time, story);
    const isJson = invocation.has("json");
    const line = isJson
      ? JSON.stringify({ done: actions.length, originals: folder })
      : `done; the originals are in ${pathOf(directory, folder)}\n`;
    await context.stdout.write(`${line}\n`);
  }
  const exitCode = await verifyAndPrint(directory, invocation, context);
  if (cut === undefined || exitCode !== EXIT.done) return exitCode;
  // What was cut had been acknowledged: clients must notice, as after a restore.
  const { beginNext } = await import("../streams/stores/backup/restoring.ts");
  const incarnation = await beginNext(directory.disk);
  await context.stdout.write(
    invocation.has("json")
      ? `${JSON.stringify({ incarnation })}\n`
      : `the server goes on as incarnation ${incarnation}\n`,
  );
  return exitCode;
}

function pathOf({ path }: OpenedDirectory, folder: string): string {
  const near = relative(process.cwd(), path);
  return `${near === "" || near.startsWith("..") || isAbsolute(near) ? path : near}/${folder}`;
}

function planText(plan: RepairPlan, cutAtLsn: number | undefined, context: Context): string {
  const { verification, problems, actions, startsAfter, cut, lostData } = plan;
  const lines = problems.slice(0, LISTED_MAX).map((problem) => problemLine(problem, context));
  if (verification.problems > LISTED_MAX) {
    lines.push(`… and ${countOf(verification.problems - LISTED_MAX, "problem")} more`);
  }
  if (verification.torn !== undefined) {
    lines.push(
      "torn end: nothing needed; it was never acknowledged and the next start writes over it",
    );
  }
  if (verification.problems === 0) {
    lines.push(createPaint(context.stdout, context.env)("green", "sound: nothing to repair"));
  }
  const all = cutAtLsn === undefined || cut === undefined ? actions : [...actions, ...cut.actions];
  if (all.length > 0) lines.push("", "with --apply:", ...all.map(describeAction));
  if (lostData.length > 0) {
    lines.push(
      "",
      "lost: the offsets named above. No repair can restore them. Put the file back from a backup,",
      "or delete the streams. You can read everything else.",
    );
  }
  if (cut !== undefined) lines.push("", ...describeCut(cut, cutAtLsn));
  if (!startsAfter && cut === undefined) {
    lines.push("", "a server does not start on this: restore the missing files from a backup");
  } else if (all.length > 0 && startsAfter) {
    lines.push("", "this loses nothing, and a server starts afterwards");
  }
  return `${printable(lines.join("\n"))}\n`;
}

function describeAction(action: RepairAction): string {
  if (action.kind === "set_aside") return `  move ${action.file} to quarantine (${action.why})`;
  if (action.kind === "restore_header") {
    return `  write the header of ${action.file} again from its copy at ${action.fromCopyAt}`;
  }
  if (action.kind === "lengthen") {
    return `  fill ${action.file} up with zeros to ${formatBytes(action.bytes)}`;
  }
  if (action.kind === "write_store") return `  write STORE again (${action.why})`;
  return `  cut ${action.file} at ${action.position}, before LSN ${action.lsn}; a copy goes to quarantine`;
}

function describeCut(cut: CutPlan, cutAtLsn: number | undefined): string[] {
  const { lsn, lastLsn, losses, obstacle } = cut;
  if (obstacle !== undefined) {
    return [
      `a cut at LSN ${lsn} is not possible: ${obstacle}`,
      "restore the missing files from a backup",
    ];
  }
  const lines =
    cutAtLsn === undefined
      ? [
          "two choices:",
          "  leave it: a server refuses to start, nothing is lost yet, a backup may have the file whole",
          `  cut the journal before LSN ${lsn}: --apply --cut-at-lsn ${lsn}`,
        ]
      : [`the cut before LSN ${lsn}:`];
  const damaged = lastLsn - lsn + 1 - cut.framesReadable;
  const known = `${countOf(cut.framesReadable, "frame")} that can be read`;
  lines.push(`  loses LSN ${lsn} to ${lastLsn}: ${known}, ${damaged} that cannot`);
  for (const loss of losses.slice(0, LISTED_MAX)) {
    const others = loss.otherChanges === 0 ? "" : `, ${countOf(loss.otherChanges, "other change")}`;
    const amount = `${countOf(loss.records, "append")} (${formatBytes(loss.bytes)})${others}`;
    lines.push(`    ${loss.path}: ${amount}`);
  }
  if (losses.length > LISTED_MAX) {
    lines.push(`    … and ${countOf(losses.length - LISTED_MAX, "stream")} more (--json has all)`);
  }
  if (cut.otherChanges > 0) {
    lines.push(
      `    ${countOf(cut.otherChanges, "change")} of subscriptions, groups and signing keys`,
    );
  }
  if (damaged > 0) lines.push("    what the damaged frames contain is not known");
  return lines;
}

export const repairCommand: Command = {
  name: "repair",
  summary: "show how to repair a damaged directory, and do it with --apply",
  usage: ["hapax repair <directory> [options]"],
  positionalsMin: 1,
  positionalsMax: 1,
  options: [
    { name: "apply", help: "do the repair; without this option nothing is changed" },
    {
      name: "cut-at-lsn",
      value: "lsn",
      help: "give up this frame and all after it; the command first lists what is lost",
    },
    PROGRESS_OPTION,
  ],
  details: [
    "The command keeps the originals in quarantine-<time>/ inside the directory and deletes nothing. Afterwards it",
    "verifies the directory. It gives up data only with --cut-at-lsn. Copy the directory first.",
  ],
  examples: [
    ["what could be done?", "hapax repair ./hapax-data"],
    ["do what loses nothing", "hapax repair ./hapax-data --apply"],
    ["give up LSN 4711 and after", "hapax repair ./hapax-data --apply --cut-at-lsn 4711"],
  ],
  run: runRepair,
};
