/** All pages of the console. */

import type { ComponentType } from "preact";
import { Frame } from "../frame.tsx";
import { Pill } from "../parts.tsx";
import { place } from "../place.ts";
import { useShared } from "../store.ts";
import { EntriesPage, EntryPage, WorkPage } from "./entries.tsx";
import { OutboxPage } from "./outbox.tsx";
import { OverviewPage } from "./overview.tsx";
import { about } from "./parts.tsx";
import { SagaPage, SagasPage } from "./sagas.tsx";

type Page = ComponentType<{ name: string | undefined }>;

const PAGES: readonly (readonly [string, string, Page])[] = [
  ["overview", "Overview", OverviewPage],
  ["running", "Running and stuck", WorkPage],
  ["entries", "Entries", EntriesPage],
  ["sagas", "Sagas", SagasPage],
  ["outbox", "Outbox", OutboxPage],
];

/** Pages of one thing: where their lead is, and their title. */
const SINGLES: Readonly<Record<string, readonly [string, string, Page]>> = {
  entry: ["entries", "Entry", EntryPage],
  saga: ["sagas", "Saga", SagaPage],
};

export function App() {
  const { page, name } = useShared(place);
  const single = Object.hasOwn(SINGLES, page) ? SINGLES[page] : undefined;
  const found = single ?? PAGES.find(([id]) => id === page) ?? PAGES[0];
  if (found === undefined) return null;
  const [at, title, Shown] = found;
  return (
    <Frame
      leads={PAGES}
      at={at}
      heading={title}
      title={title}
      brand="Console"
      search="entries"
      foot={<Who />}
    >
      <Shown key={`${page} ${name ?? ""}`} name={name} />
    </Frame>
  );
}

function Who() {
  const known = useShared(about);
  if (known === undefined) return <div role="status" class="state" />;
  return (
    <div role="status" class="state">
      <Pill tone="calm">{known.acts.length === 0 ? "Looking only" : "May act"}</Pill>
      <p class="note">
        {known.title}, as {known.by}
      </p>
    </div>
  );
}
