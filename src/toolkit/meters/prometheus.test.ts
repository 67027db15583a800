// A parser of the text reads the same counts back, for any labels.
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { METRICS } from "./meter.ts";
import { prometheusMeter } from "./prometheus.ts";

/** Reads the format as its description has it: names, quoted values with three escapes, numbers. */
function parse(text: string): ReadonlyMap<string, number> {
  const values = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (match === null) throw new Error(`not a line of the format: ${line}`);
    const [, name = "", labels = "", value = ""] = match;
    const pairs = [...labels.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\[\\n"])*)"(?:,|$)/g)];
    expect(pairs.map(([whole]) => whole).join("")).toBe(labels);
    const read = pairs.map(([, label, quoted = ""]) => [
      label,
      quoted.replaceAll(/\\(.)/g, (_escape, letter: string) => (letter === "n" ? "\n" : letter)),
    ]);
    values.set(JSON.stringify([name, read]), Number(value));
  }
  return values;
}

describe("the text", () => {
  test("has each family once, with its help and its kind, then its values", () => {
    const meter = prometheusMeter();
    expect(meter.text()).toBe("");
    meter.set("dead_letters", 2);
    meter.add("claims_total", 1, { primitive: "once" });
    meter.add("claims_total", 1, { primitive: "http" });
    meter.add("claims_total", 2, { primitive: "once" });
    expect(meter.text()).toBe(
      `# HELP hapax_ledger_claims_total ${METRICS.claims_total.help}\n` +
        "# TYPE hapax_ledger_claims_total counter\n" +
        'hapax_ledger_claims_total{primitive="once"} 3\n' +
        'hapax_ledger_claims_total{primitive="http"} 1\n' +
        `# HELP hapax_ledger_dead_letters ${METRICS.dead_letters.help}\n` +
        "# TYPE hapax_ledger_dead_letters gauge\n" +
        "hapax_ledger_dead_letters 2\n",
    );
    expect(meter.contentType).toContain("0.0.4");
  });

  test("a gauge is what it was set to last, and the same labels in another order are the same", () => {
    const meter = prometheusMeter({ prefix: "shop_", labels: { shard: "a" } });
    meter.set("relay_lag_seconds", 7, { relay: "mail", way: "log" });
    meter.set("relay_lag_seconds", Infinity, { way: "log", relay: "mail" });
    const [last] = meter.text().split("\n").slice(2);
    expect(last).toBe('shop_relay_lag_seconds{relay="mail",shard="a",way="log"} +Inf');
  });

  test("every label value reads back as it was given", () => {
    const value = fc.oneof(fc.string(), fc.string({ unit: fc.constantFrom("\\", '"', "\n", "n") }));
    fc.assert(
      fc.property(value, fc.integer({ min: 0, max: 1e9 }), (label, count) => {
        const meter = prometheusMeter();
        meter.add("failures_total", count, { primitive: label });
        const name = JSON.stringify(["hapax_ledger_failures_total", [["primitive", label]]]);
        expect(parse(meter.text())).toEqual(new Map([[name, count]]));
      }),
    );
  });

  test("a label whose name Prometheus would refuse gets one that it takes", () => {
    const meter = prometheusMeter();
    meter.add("failures_total", 1, { "1st-name": "x" });
    expect(meter.text()).toContain('{_1st_name="x"} 1\n');
  });
});

describe("counting", () => {
  test("what is no count changes nothing: a counter never falls", () => {
    const meter = prometheusMeter();
    meter.add("claims_total", 5);
    for (const value of [-1, Number.NaN, Infinity, -Infinity]) meter.add("claims_total", value);
    expect(meter.text()).toContain("hapax_ledger_claims_total 5\n");
  });

  test("a label with endless values ends as one more line, which has the rest", () => {
    const meter = prometheusMeter();
    for (let id = 0; id < 5000; id += 1) meter.add("claims_total", 1, { id: String(id) });
    meter.add("claims_total", 1, { id: "0" });
    const lines = meter.text().split("\n");
    expect(lines).toHaveLength(2 + 201 + 1);
    expect(lines).toContain('hapax_ledger_claims_total{id="0"} 2');
    expect(lines).toContain('hapax_ledger_claims_total{overflow="true"} 4800');
  });
});

test("docs/guides/toolkit-metrics.md lists every metric, with its kind and its meaning, and no other", () => {
  const page = readFileSync(
    new URL("../../../docs/guides/toolkit-metrics.md", import.meta.url),
    "utf8",
  );
  const rows = [...page.matchAll(/^\| `hapax_ledger_(\w+)` +\| (\w+) +\| ([^|]*?) +\|/gm)].map(
    ([, name, kind, help]) => [name, { kind, help }],
  );
  expect(rows).toEqual(Object.entries(METRICS));
});
