/** Was it stored? The answer for a transaction, a key and a producer. */

import {
  IDEMPOTENCY_KEY,
  PRODUCER_EPOCH,
  PRODUCER_ID,
  PRODUCER_NEXT_OFFSET,
  PRODUCER_SEQ,
} from "../../protocol/header-names.ts";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Card, Choice, Field, Pill, Problem } from "../parts.tsx";
import { Refusal } from "../refusal.ts";
import { call, getJson } from "../server.ts";
import { formatTime } from "../words.ts";

/** A form that asks one question, and its answer. */
function Question(props: {
  title: string;
  ask: () => Promise<ComponentChildren>;
  children: ComponentChildren;
}) {
  const [answer, setAnswer] = useState<ComponentChildren>(null);
  const [error, setError] = useState<unknown>(undefined);
  const ask = async (): Promise<void> => {
    setError(undefined);
    setAnswer(null);
    try {
      setAnswer(await props.ask());
    } catch (thrown) {
      setError(thrown);
    }
  };
  return (
    <Card title={props.title}>
      <form
        class="question"
        onSubmit={(event) => {
          event.preventDefault();
          void ask();
        }}
      >
        {props.children}
        <button type="submit" class="solid">
          Look up
        </button>
      </form>
      <div class="answer" role="status">
        {answer}
      </div>
      {error === undefined ? null : <Problem error={error} />}
    </Card>
  );
}

export function LookUpPage() {
  return (
    <div class="columns">
      <TransactionQuestion />
      <KeyQuestion />
      <ProducerQuestion />
    </div>
  );
}

interface Committed {
  readonly operations: readonly { readonly stream?: string; readonly nextOffset?: string }[] | null;
}

function TransactionQuestion() {
  const [kind, setKind] = useState("key");
  const [name, setName] = useState("");
  const [epoch, setEpoch] = useState("");
  const [seq, setSeq] = useState("");
  const ask = async (): Promise<ComponentChildren> => {
    const query = kind === "key" ? {} : { seq, [kind]: epoch };
    try {
      const { operations } = await getJson<Committed>(["_hapax", "transactions", name], query);
      return (
        <>
          <Pill tone="good">Yes, it is committed</Pill>
          <ul class="list">
            {(operations ?? []).map(({ stream = "an offset of a group", nextOffset }, index) => (
              <li key={index}>
                {stream} {nextOffset === undefined ? null : <code>{nextOffset}</code>}
              </li>
            ))}
          </ul>
        </>
      );
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== "transaction_not_found") throw error;
      return (
        <>
          <Pill tone="warn">No, not now</Pill> The request may still arrive. To settle it, send it
          again under the same identity.
        </>
      );
    }
  };
  return (
    <Question title="A transaction" ask={ask}>
      <Choice
        label="It has"
        value={kind}
        onChange={setKind}
        options={[
          ["key", "an idempotency key"],
          ["epoch", "a producer with an epoch"],
          ["session", "a producer with a session"],
        ]}
      />
      <Field
        label={kind === "key" ? "Key" : "Producer"}
        value={name}
        onInput={setName}
        isRequired
      />
      {kind === "key" ? null : (
        <>
          <Field
            label={kind === "epoch" ? "Epoch" : "Session"}
            value={epoch}
            onInput={setEpoch}
            isRequired
          />
          <Field label="Sequence" value={seq} onInput={setSeq} isRequired />
        </>
      )}
    </Question>
  );
}

const whole = (path: string): string => (path.startsWith("/") ? path : `/v1/stream/${path}`);

interface KnownKey {
  readonly stored: boolean;
  readonly nextOffset?: string;
  readonly storedAt?: string;
}

function KeyQuestion() {
  const [stream, setStream] = useState("");
  const [key, setKey] = useState("");
  const ask = async (): Promise<ComponentChildren> => {
    const quoted = `"${key.replace(/["\\]/g, "\\$&")}"`;
    const headers = { [IDEMPOTENCY_KEY]: quoted };
    const query = { stream: whole(stream) };
    const {
      stored,
      nextOffset,
      storedAt = "",
    } = await getJson<KnownKey>("/_hapax/keys", query, {
      headers,
    });
    return stored ? (
      <>
        <Pill tone="good">Yes, it is stored</Pill> at {formatTime(storedAt)}, up to{" "}
        <code>{nextOffset}</code>
      </>
    ) : (
      <>
        <Pill tone="warn">Not in the window</Pill> It was never stored, or the stream has forgotten
        it.
      </>
    );
  };
  return (
    <Question title="A key of a stream" ask={ask}>
      <Field
        label="Stream of the key"
        value={stream}
        onInput={setStream}
        placeholder="orders"
        isRequired
      />
      <Field label="Idempotency key" value={key} onInput={setKey} isRequired />
    </Question>
  );
}

function ProducerQuestion() {
  const [stream, setStream] = useState("");
  const [id, setId] = useState("");
  const ask = async (): Promise<ComponentChildren> => {
    const answer = await call("HEAD", whole(stream), { headers: { [PRODUCER_ID]: id } });
    const epoch = answer.headers.get(PRODUCER_EPOCH);
    if (epoch === null) return <Pill tone="warn">The stream does not know it</Pill>;
    return (
      <>
        <Pill tone="good">Known</Pill> epoch <b>{epoch}</b>, last sequence{" "}
        <b>{answer.headers.get(PRODUCER_SEQ)}</b>, up to{" "}
        <code>{answer.headers.get(PRODUCER_NEXT_OFFSET) ?? "?"}</code>
      </>
    );
  };
  return (
    <Question title="A producer of a stream" ask={ask}>
      <Field
        label="Stream of the producer"
        value={stream}
        onInput={setStream}
        placeholder="orders"
        isRequired
      />
      <Field label="Producer id" value={id} onInput={setId} isRequired />
    </Question>
  );
}
