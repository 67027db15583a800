// deploy/monitoring: the board and the alerts name metrics and labels that a real server and the meters have; Prometheus itself checks the rules.
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parse } from "yaml";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { ERRORS } from "../../src/base/errors.ts";
import { ACTIONS } from "../../src/streams/access/identity.ts";
import { requirePart } from "../client/runtimes-kit.ts";
import { hasProgram } from "../kits/debian-programs.ts";
import { read, root } from "../kits/documents.ts";

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string };
}

const { groups } = parse(read("deploy/monitoring/alerts.yaml")) as {
  readonly groups: readonly { readonly rules: readonly Rule[] }[];
};
const rules = groups.flatMap((group) => group.rules);
const board = JSON.parse(read("deploy/monitoring/grafana.json")) as {
  readonly panels: readonly {
    readonly id: number;
    readonly title: string;
    readonly gridPos: Readonly<Record<"x" | "y" | "w" | "h", number>>;
    readonly targets: readonly { readonly expr: string; readonly legendFormat: string }[];
  }[];
};
const targets = board.panels.flatMap((panel) => panel.targets);
/** From `/metrics` of a server, and of the toolkit from its page, which a test compares with the meters. */
const labelsOf = new Map<string, Set<string>>();

/** What a node of a cluster shows beside its shards. A cluster needs a database, so the names are read where they are made. */
const CLUSTER = Array.from(
  read("src/streams/cluster/gathering.ts").matchAll(/"(hapax_cluster_\w+)"/g),
  ([, name = ""]) => name,
);

beforeAll(async () => {
  const quotas = { appendsPerSecond: 100 };
  const identity = {
    name: "all",
    namespace: "/v1/stream/a",
    grants: [{ actions: ACTIONS }],
    quotas,
  };
  const outside = { name: "observer", grants: [{ actions: ACTIONS }] };
  const server = await startNodeServer({
    store: "memory",
    port: 0,
    authorize: ({ method }) => (method === "GET" ? outside : identity),
  });
  try {
    const headers = { "Content-Type": "text/plain" };
    await fetch(`${server.url}/v1/stream/a/s`, { method: "PUT", headers });
    await fetch(`${server.url}/v1/stream/a/s`, { method: "POST", headers, body: "x" });
    const text = await (await fetch(`${server.url}/metrics`)).text();
    for (const [, name = "", labels = ""] of text.matchAll(/^(hapax_\w+)(?:\{(.*)\})? /gm)) {
      const known = labelsOf.get(name) ?? new Set<string>();
      for (const [, label = ""] of labels.matchAll(/(\w+)="/g)) known.add(label);
      labelsOf.set(name, known);
    }
  } finally {
    await server.stop();
  }
  const toolkit = read("docs/guides/toolkit-metrics.md");
  for (const [, name = ""] of toolkit.matchAll(/^\| `(hapax_ledger_\w+)`/gm))
    labelsOf.set(name, new Set(["primitive", "relay", "saga", "outcome", "state"]));
  for (const name of CLUSTER) labelsOf.set(name, new Set());
});

/** Prometheus adds these, or the functions make them. */
const ADDED = ["instance", "job"];

/** What is wrong with the names in a query. */
function problemsOf(query: string, legend = ""): string[] {
  const wrong: string[] = [];
  const names = query.match(/\bhapax_\w+/g) ?? [];
  for (const name of names) if (!labelsOf.has(name)) wrong.push(`there is no metric ${name}`);
  const known = new Set([...ADDED, ...names.flatMap((name) => [...(labelsOf.get(name) ?? [])])]);
  const used = [
    ...Array.from(query.matchAll(/(\w+)(?:!=|=~|=)"/g), (match) => match[1] ?? ""),
    ...Array.from(query.matchAll(/by \(([^)]*)\)/g), (match) =>
      (match[1] ?? "").split(/,\s*/),
    ).flat(),
    ...Array.from(
      legend.matchAll(/\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}/g),
      (match) => match[1] ?? "",
    ),
  ];
  for (const label of used) if (!known.has(label)) wrong.push(`${query} has no label ${label}`);
  return wrong;
}

test("every query of the board is about metrics and labels that there are", () => {
  expect(targets.length).toBeGreaterThan(25);
  expect(targets.flatMap(({ expr, legendFormat }) => problemsOf(expr, legendFormat))).toEqual([]);
  expect(problemsOf('rate(hapax_no_such_total[5m]) + hapax_streams{shard="1"}').length).toBe(2);
});

test("every alert is about metrics and labels that there are", () => {
  expect(rules.length).toBeGreaterThan(10);
  const problems = rules.flatMap(({ expr, annotations }) => problemsOf(expr, annotations.summary));
  expect(problems).toEqual([]);
});

test("every metric of the server is on the board", () => {
  const shown = targets.map(({ expr }) => expr).join("\n");
  const families = [...labelsOf.keys()]
    .filter((name) => !name.startsWith("hapax_ledger_"))
    .map((name) => name.replace(/_(bucket|sum|count)$/, ""));
  expect([...new Set(families)].filter((name) => !shown.includes(name))).toEqual([]);
});

test("the metrics of a cluster are in the guide", () => {
  const guide = read("docs/guides/metrics.md").matchAll(/^\| `(hapax_cluster_\w+)`/gm);
  expect(CLUSTER.length).toBeGreaterThan(5);
  expect(Array.from(guide, ([, name]) => name)).toEqual(CLUSTER);
});

test("a query of the board adds the shards of a node up, or names them", () => {
  const alone = targets.filter(({ expr }) =>
    /^(?:rate\()?hapax_(?!ledger|cluster|quota)/.test(expr),
  );
  expect(alone).toEqual([]);
});

test("no two panels of the board lie on each other", () => {
  const places = new Set<string>();
  for (const { gridPos } of board.panels) {
    expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24);
    for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1) {
      for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
        expect(places.has(`${x} ${y}`)).toBe(false);
        places.add(`${x} ${y}`);
      }
    }
  }
  expect(new Set(board.panels.map(({ id }) => id)).size).toBe(board.panels.length);
});

test("the runbook has a part for every alert, and for no other", () => {
  const parts = Array.from(read("docs/guides/runbook.md").matchAll(/^### (Hapax\w+)$/gm));
  expect(parts.map(([, name = ""]) => name).toSorted()).toEqual(
    rules.map(({ alert }) => alert).toSorted(),
  );
  for (const { labels } of rules) expect(["page", "ticket"]).toContain(labels.severity);
});

test("the runbook has every error that an operator can do something about, and no code that there is not", () => {
  const [, table = ""] = read("docs/guides/runbook.md").split("## By error code");
  const rows = table.split("## By symptom")[0]?.match(/^\| `.*/gm) ?? [];
  const codes = rows.flatMap((row) => row.split("|")[1]?.match(/\w+/g) ?? []);
  const known = Object.entries(ERRORS);
  expect(codes.filter((code) => !known.some(([name]) => name === code))).toEqual([]);
  expect(new Set(codes).size).toBe(codes.length);
  const operators = known.filter(([, { status }]) => status >= 500 || status === 429);
  expect(operators.map(([name]) => name).filter((name) => !codes.includes(name))).toEqual([]);
});

const folder = mkdtempSync(join(tmpdir(), "hapax-monitoring-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Cases for `promtool test rules`: a series, and the alert that it fires. */
const CASES: readonly (readonly [string, string, string])[] = [
  ['hapax_writes_open{instance="a"}', "0x10", "HapaxWritesStopped"],
  ['up{job="hapax",instance="a"}', "0x10", "HapaxDown"],
  ['hapax_appends_total{instance="a",outcome="reused"}', "0+1x10", "HapaxReusedNumbers"],
  ['hapax_info{instance="a",durability="memory"}', "1x10", "HapaxNotDurable"],
  ['hapax_cluster_shards_orphaned{instance="a"}', "2x10", "HapaxShardsOrphaned"],
  ['hapax_ledger_dead_letters{relay="r"}', "3x10", "HapaxDeadLetters"],
];

/** Series that are as they should be. */
const QUIET: readonly (readonly [string, string])[] = [
  ['hapax_info{instance="a",durability="fsync"}', "HapaxNotDurable"],
  ['hapax_info{instance="a",durability="replicated"}', "HapaxNotDurable"],
];

// An install may take minutes.
test(
  "Prometheus takes the configuration and the rules, and the alerts fire",
  { timeout: 300_000 },
  (context) => {
    const has = hasProgram("promtool", "prometheus") ? true : undefined;
    requirePart(context, has, "promtool is not installed: not tested");
    cpSync(join(root, "deploy", "monitoring"), folder, { recursive: true });
    writeFileSync(join(folder, "hapax.token"), "a token");
    const cases = CASES.map(([series, values, alert]) => ({
      interval: "1m",
      input_series: [{ series, values }],
      alert_rule_test: [
        { eval_time: "8m", alertname: alert, exp_alerts: [expected(series, alert)] },
      ],
    }));
    const quiet = QUIET.map(([series, alert]) => ({
      interval: "1m",
      input_series: [{ series, values: "1x10" }],
      alert_rule_test: [{ eval_time: "8m", alertname: alert, exp_alerts: [] }],
    }));
    const tests = {
      rule_files: ["alerts.yaml"],
      evaluation_interval: "1m",
      tests: [...cases, ...quiet],
    };
    writeFileSync(join(folder, "cases.yaml"), JSON.stringify(tests));
    for (const args of [
      ["check", "config", "prometheus.yaml"],
      ["check", "rules", "alerts.yaml"],
      ["test", "rules", "cases.yaml"],
    ]) {
      const { status, stdout, stderr } = spawnSync("promtool", args, {
        cwd: folder,
        encoding: "utf8",
      });
      expect(status, `${args.join(" ")}: ${stdout}${stderr}`).toBe(0);
    }
  },
);

function expected(series: string, alert: string): unknown {
  const labels = Object.fromEntries(
    Array.from(series.matchAll(/(\w+)="([^"]*)"/g), ([, name = "", value = ""]) => [name, value]),
  );
  const rule = rules.find((one) => one.alert === alert);
  const summary = rule?.annotations.summary.replaceAll(
    /\{\{ \$labels\.(\w+) \}\}/g,
    (_, name: string) => labels[name] ?? "",
  );
  return {
    exp_labels: { ...labels, severity: rule?.labels.severity },
    exp_annotations: { summary },
  };
}
