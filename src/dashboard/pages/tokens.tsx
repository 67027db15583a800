/** The API keys of the server: what each may do. Secrets are not kept, so none is shown. */

import { useLoaded } from "../loading.ts";
import { Card, Pill, Problem, Table } from "../parts.tsx";
import { getJson } from "../server.ts";
import { formatTime } from "../words.ts";

interface Grant {
  readonly actions: readonly string[];
  readonly streams?: readonly string[];
  readonly groups?: readonly string[];
  readonly subscriptions?: readonly string[];
  readonly producers?: readonly string[];
}

interface Token {
  readonly id: string;
  readonly name: string;
  readonly createdAt: string;
  readonly expiresAt?: string;
  readonly revokedAt?: string;
  readonly namespace?: string;
  readonly grants: readonly Grant[];
}

const EVERY_MS = 5000;

export function TokensPage() {
  const { value, error } = useLoaded(
    (signal) => getJson<{ tokens: readonly Token[] }>("/_hapax/tokens", {}, { signal }),
    [],
    EVERY_MS,
  );
  return (
    <>
      <Card title="API keys">
        {error === undefined ? null : <Problem error={error} />}
        {value === undefined ? null : (
          <Table
            label="API keys"
            head={["Name", "May", "Namespace", "State", "Created", "Id"]}
            empty="This server has no file of keys. Without any credential, every client that reaches it may do everything."
            rows={value.tokens.map((token) => ({
              key: token.id,
              cells: [
                <b>{token.name}</b>,
                <Grants grants={token.grants} />,
                token.namespace ?? "whole server",
                <State token={token} />,
                formatTime(token.createdAt),
                <code>{token.id}</code>,
              ],
            }))}
          />
        )}
      </Card>
      <Card title="Make, replace and revoke them">
        <p>
          Make keys on the machine of the server. This page cannot make keys, so a stolen session
          cannot either.
        </p>
        <pre class="commands">{COMMANDS}</pre>
        <p class="note">
          {value?.tokens.length === 0
            ? "After the first key restart the server: from then on every request needs a key. It takes later changes within a second."
            : "The server takes changes within a second, without a restart."}
        </p>
      </Card>
    </>
  );
}

const COMMANDS = [
  "hapax tokens create --name billing --allow append,read --streams '/v1/stream/billing/**'",
  "hapax tokens list",
  "hapax tokens revoke <id>",
].join("\n");

function Grants({ grants }: { grants: readonly Grant[] }) {
  return (
    <ul class="plain">
      {grants.map(({ actions, streams, groups, subscriptions, producers }, index) => {
        const limits = [...(streams ?? []), ...(groups ?? []), ...(subscriptions ?? [])];
        const on = [...limits, ...(producers ?? [])].join(", ");
        return (
          <li key={index}>
            {actions.length === 9 ? "everything" : actions.join(", ")}
            {on === "" ? "" : ` on ${on}`}
          </li>
        );
      })}
    </ul>
  );
}

function State({ token: { revokedAt, expiresAt } }: { token: Token }) {
  if (revokedAt !== undefined) return <Pill tone="bad">revoked</Pill>;
  const isOver = expiresAt !== undefined && Date.parse(expiresAt) <= Date.now();
  if (isOver) return <Pill tone="warn">expired</Pill>;
  return (
    <>
      <Pill tone="good">in force</Pill>
      {expiresAt === undefined ? null : <span class="note"> until {formatTime(expiresAt)}</span>}
    </>
  );
}
