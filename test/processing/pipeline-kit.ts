/** What tests of pipelines share: streams of numbers, and pipelines that end when all of them are through. */

import type { Connection } from "../../src/client/processing/connection.ts";
import { type Pipeline } from "../../src/client/processing/pipeline.ts";
import type { PipelineOptions } from "../../src/client/processing/pipeline-options.ts";
import type { FaultProxyOptions } from "../../src/testing/fault-proxy.ts";
import { badNetwork } from "./stage.ts";

/** Connections that fall silent are left out: a reader at the tail finds out only when its long-poll should be over. */
export function lossy(seed: number): FaultProxyOptions {
  return { ...badNetwork(seed), silenceRequests: 0, silenceAnswers: 0 };
}

export interface Numbered {
  readonly n: number;
}

export const INPUT = "/v1/stream/in";
export const OUTPUT = "/v1/stream/out";
export const DEAD = "/v1/stream/dead";

/** Creates a stream and fills it with the numbers from `first` on, in one append. */
export async function fill(
  hapax: Connection,
  path: string,
  count: number,
  first = 0,
): Promise<void> {
  await hapax.transaction((tx) => {
    tx.create(path);
    for (let n = first; n < first + count; n += 1) tx.append(path, { n });
  });
}

export async function valuesOf<T = Numbered>(hapax: Connection, path: string): Promise<T[]> {
  return hapax.stream(path).read<T>().values();
}

export function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, n) => n);
}

/** A pipeline that is closed by itself when so many records are through. */
export function untilDone<T, Tx = unknown>(
  hapax: Connection,
  count: number,
  options: PipelineOptions<T, Tx>,
): Pipeline<T, Tx> {
  const pipeline: Pipeline<T, Tx> = hapax.pipeline<T, Tx>({
    retry: { pauseMs: 1, pauseMsMax: 5 },
    ...options,
    onProgress: (progress) => {
      options.onProgress?.(progress);
      if (progress.records >= count) void pipeline.close();
    },
  });
  return pipeline;
}

/** Something that is opened once. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

/** Ends when the group has nothing left to process. */
export async function lagOf(hapax: Connection, group: string): Promise<number> {
  const { cursors } = await hapax.group(group).describe();
  return cursors.reduce((bytes, { lag }) => bytes + lag, 0);
}
