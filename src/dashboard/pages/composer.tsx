/** Appends a record under a key, and shows what a retry of it does: nothing. */

import {
  IDEMPOTENCY_KEY,
  IDEMPOTENCY_REPLAYED,
  STREAM_NEXT_OFFSET,
} from "../../protocol/header-names.ts";
import { useId, useState } from "preact/hooks";
import { Card, Pill, Problem } from "../parts.tsx";
import { call, newKey } from "../server.ts";
import type { Described } from "./stream.tsx";

interface Sent {
  readonly body: string;
  readonly key: string;
}

interface Outcome {
  readonly isDuplicate: boolean;
  readonly offset: string;
}

export function Composer({ stream, onChange }: { stream: Described; onChange: () => void }) {
  const isJson = /^application\/json\b/i.test(stream.contentType);
  const id = useId();
  const [body, setBody] = useState("");
  const [sent, setSent] = useState<Sent | undefined>(undefined);
  const [outcome, setOutcome] = useState<Outcome | undefined>(undefined);
  const [error, setError] = useState<unknown>(undefined);
  const send = async (what: Sent): Promise<void> => {
    setSent(what);
    setError(undefined);
    try {
      const headers = { "Content-Type": stream.contentType, [IDEMPOTENCY_KEY]: what.key };
      const answer = await call("POST", stream.path, { headers, body: what.body });
      setOutcome({
        isDuplicate: answer.headers.has(IDEMPOTENCY_REPLAYED),
        offset: answer.headers.get(STREAM_NEXT_OFFSET) ?? "",
      });
      onChange();
    } catch (thrown) {
      setOutcome(undefined);
      setError(thrown);
    }
  };
  return (
    <Card title="Append">
      <form
        class="composer"
        onSubmit={(event) => {
          event.preventDefault();
          void send({ body, key: newKey() });
        }}
      >
        <label for={id}>{isJson ? "A JSON value, or an array of records" : "Text"}</label>
        <textarea
          id={id}
          rows={3}
          spellcheck={false}
          value={body}
          placeholder={isJson ? '{"id": 1}' : ""}
          onInput={(event) => setBody(event.currentTarget.value)}
        />
        <div class="buttons">
          <button type="submit" class="solid" disabled={body === ""}>
            Append
          </button>
          <button
            type="button"
            disabled={sent === undefined}
            onClick={() => sent && void send(sent)}
          >
            Send the same again
          </button>
          <span role="status">{outcome === undefined ? null : <Told outcome={outcome} />}</span>
        </div>
      </form>
      {error === undefined ? null : <Problem error={error} />}
    </Card>
  );
}

function Told({ outcome: { isDuplicate, offset } }: { outcome: Outcome }) {
  return isDuplicate ? (
    <>
      <Pill tone="good">duplicate stopped</Pill> it was stored once, up to <code>{offset}</code>
    </>
  ) : (
    <>
      <Pill tone="good">stored</Pill> up to <code>{offset}</code>
    </>
  );
}
