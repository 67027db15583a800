// The calls that an OpenTelemetry meter gets: names, units and values.
import { expect, test } from "vitest";
import { type CounterName, type GaugeName, METRICS } from "./meter.ts";
import {
  type GaugeResult,
  type InstrumentOptions,
  type OpenTelemetryMeter,
  openTelemetryMeter,
} from "./opentelemetry.ts";

/** The side of OpenTelemetry: it keeps the instruments, and collects when it is asked to. */
class Collector implements OpenTelemetryMeter {
  readonly instruments: { readonly name: string; readonly options?: InstrumentOptions }[] = [];
  readonly added: unknown[] = [];
  readonly #callbacks: [string, (result: GaugeResult) => void][] = [];

  createCounter(name: string, options?: InstrumentOptions) {
    this.instruments.push({ name, ...(options && { options }) });
    return { add: (value: number, labels?: object) => this.added.push([name, value, labels]) };
  }

  createObservableGauge(name: string, options?: InstrumentOptions) {
    this.instruments.push({ name, ...(options && { options }) });
    return {
      addCallback: (callback: (result: GaugeResult) => void) => {
        this.#callbacks.push([name, callback]);
      },
    };
  }

  collect(): unknown[] {
    const seen: unknown[] = [];
    for (const [name, callback] of this.#callbacks) {
      callback({ observe: (value, labels) => seen.push([name, value, labels]) });
    }
    return seen;
  }
}

test("an instrument is made once, with OpenTelemetry's kind of name and unit", () => {
  const collector = new Collector();
  const meter = openTelemetryMeter(collector);
  meter.add("claims_total", 1, { primitive: "once" });
  meter.add("claims_total", 2);
  meter.set("oldest_pending_seconds", 1);
  meter.set("slot_lag_bytes", 1);
  meter.set("window_headroom_ratio", 1);
  meter.set("dead_letters", 1);
  const units = collector.instruments.map(({ name, options }) => [name, options?.unit]);
  expect(units).toEqual([
    ["hapax.ledger.claims", "1"],
    ["hapax.ledger.oldest_pending", "s"],
    ["hapax.ledger.slot_lag", "By"],
    ["hapax.ledger.window_headroom", "1"],
    ["hapax.ledger.dead_letters", "1"],
  ]);
  expect(collector.instruments[0]?.options?.description).toBe(METRICS.claims_total.help);
  expect(collector.added).toEqual([
    ["hapax.ledger.claims", 1, { primitive: "once" }],
    ["hapax.ledger.claims", 2, {}],
  ]);
});

test("no two metrics have the same instrument", () => {
  const collector = new Collector();
  const meter = openTelemetryMeter(collector);
  for (const [name, { kind }] of Object.entries(METRICS)) {
    // Casts: the kind says of which of both it is a name.
    if (kind === "counter") meter.add(name as CounterName, 1);
    else meter.set(name as GaugeName, 1);
  }
  const names = collector.instruments.map(({ name }) => name);
  expect(new Set(names).size).toBe(Object.keys(METRICS).length);
});

test("a gauge tells at every collection what it was set to last, for each label set", () => {
  const collector = new Collector();
  const meter = openTelemetryMeter(collector);
  meter.set("relay_lag_seconds", 1, { relay: "a", way: "log" });
  meter.set("relay_lag_seconds", 2, { relay: "b" });
  meter.set("relay_lag_seconds", 3, { way: "log", relay: "a" });
  const name = "hapax.ledger.relay_lag";
  const expected = [
    [name, 3, { way: "log", relay: "a" }],
    [name, 2, { relay: "b" }],
  ];
  expect(collector.collect()).toEqual(expected);
  expect(collector.collect()).toEqual(expected);
  for (let id = 0; id < 1000; id += 1) meter.set("relay_lag_seconds", id, { relay: `r${id}` });
  expect(collector.collect()).toHaveLength(200);
});

test("what is no count is not added", () => {
  const collector = new Collector();
  const meter = openTelemetryMeter(collector);
  for (const value of [-1, Number.NaN, Infinity]) meter.add("claims_total", value);
  expect(collector.added).toEqual([]);
});
