/** All behaviours of the client as tests of some servers; what a server cannot show is printed, and why. */

import { afterAll, afterEach, beforeAll, describe, test } from "vitest";
import { claiming } from "./behaviours-claims.ts";
import {
  type Ability,
  type Behaviour,
  openWorld,
  type OpenWorld,
  type RunningServer,
  type ServerKind,
} from "./behaviours-kit.ts";
import { reading } from "./behaviours-reads.ts";
import { writing } from "./behaviours-writes.ts";

const behaviours: readonly Behaviour[] = [...writing, ...claiming, ...reading];

export function describeBehaviours(servers: readonly ServerKind[]): void {
  afterAll(() => {
    console.log(servers.map(tally).join("\n"));
  });
  describe.each(servers)("$name", (kind) => {
    let server: RunningServer;
    let world: OpenWorld | undefined;

    beforeAll(async () => {
      server = await kind.open();
    });
    afterAll(() => server.stop());
    afterEach(() => world?.end());

    for (const [index, behaviour] of behaviours.entries()) {
      if (!isShown(behaviour, kind)) continue;
      test(behaviour.name, async () => {
        world = openWorld(kind, server, `case-${String(index)}`);
        await behaviour.run(world);
      });
    }
  });
}

function isShown({ needs, lacks }: Behaviour, { has }: ServerKind): boolean {
  return (needs === undefined || has.has(needs)) && (lacks === undefined || !has.has(lacks));
}

/** One line for a server: how many behaviours it shows, and how many need what it does not have. */
function tally(kind: ServerKind): string {
  const missing = new Map<Ability, number>();
  for (const { needs } of behaviours) {
    if (needs === undefined || kind.has.has(needs)) continue;
    missing.set(needs, (missing.get(needs) ?? 0) + 1);
  }
  const shown = behaviours.filter((behaviour) => isShown(behaviour, kind)).length;
  const skipped = [...missing].map(([needs, cases]) => `${needs} (${String(cases)})`).join(", ");
  const line = `${kind.name}: ${String(shown)} behaviours of the client shown`;
  return skipped === "" ? line : `${line}; skipped, because it does not have them: ${skipped}`;
}
