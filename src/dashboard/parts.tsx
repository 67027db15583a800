/** The small parts that pages are made of. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Refusal } from "./refusal.ts";

type Tone = "good" | "bad" | "warn" | "calm";

export function Pill({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`pill ${tone}`}>{children}</span>;
}

/** One figure, large. */
export function Tile(props: {
  label: string;
  value: string;
  note?: string;
  isMain?: boolean;
  tone?: Tone;
}) {
  const { label, value, note, isMain = false, tone = "calm" } = props;
  return (
    <div class={`tile ${tone} ${isMain ? "main" : ""}`} data-tile={label}>
      <span class="label">{label}</span>
      <strong class="figure">{value}</strong>
      {note === undefined ? null : <span class="note">{note}</span>}
    </div>
  );
}

/** What went wrong, in the words of the server. */
export function Problem({ error }: { error: unknown }) {
  const isRefusal = error instanceof Refusal;
  const words = error instanceof Error ? error.message : String(error);
  return (
    <div class="problem" role="alert">
      <strong>{headline(error)}</strong>
      <p>{words}</p>
      {isRefusal && error.help !== "" ? <p class="note">{error.help}</p> : null}
    </div>
  );
}

function headline(error: unknown): string {
  if (!(error instanceof Refusal)) return "That did not work";
  if (error.status === 0) return "No answer";
  if (error.status === 403) return "Not allowed";
  return `Refused: ${error.code}`;
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Card(props: {
  title: string;
  actions?: ComponentChildren;
  children: ComponentChildren;
}) {
  const id = useId();
  return (
    <section class="card" aria-labelledby={id}>
      <header>
        <h2 id={id}>{props.title}</h2>
        <div class="actions">{props.actions}</div>
      </header>
      {props.children}
    </section>
  );
}

/** Names and values. Values that are undefined are left out. */
export function Facts({
  of,
}: {
  of: readonly (readonly [string, ComponentChildren | undefined])[];
}) {
  return (
    <dl class="facts">
      {of
        .filter(([, value]) => value !== undefined)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

export function Table(props: {
  label: string;
  head: readonly string[];
  rows: readonly { readonly key: string; readonly cells: readonly ComponentChildren[] }[];
  empty: string;
}) {
  const { label, head, rows, empty } = props;
  if (rows.length === 0) return <Empty>{empty}</Empty>;
  return (
    // Focusable, so that the keyboard can scroll it where it is wider than its place. On a narrow screen the style makes a list of
    // each row, and each cell says the name of its column.
    <div class="scroll" tabIndex={0} role="region" aria-label={`Table: ${label}`}>
      <table>
        <thead>
          <tr>
            {head.map((name) =>
              // Buttons need no name above them.
              name === "" ? (
                <td key={name} />
              ) : (
                <th key={name} scope="col">
                  {name}
                </th>
              ),
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, cells }) => (
            <tr key={key} data-row={key}>
              {cells.map((cell, index) => (
                <td key={head[index]} data-label={head[index]}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Field(props: {
  label: string;
  value: string;
  onInput: (value: string) => void;
  hint?: string;
  /** Digits for a number, dots for a secret. */
  kind?: "text" | "secret" | "number";
  placeholder?: string;
  name?: string;
  isRequired?: boolean;
}) {
  const id = useId();
  const { label, value, onInput, hint, kind = "text", placeholder = "", isRequired } = props;
  const common = {
    id,
    name: props.name ?? label,
    value,
    placeholder,
    required: isRequired === true,
    autocomplete: "off",
    spellcheck: false,
    "aria-describedby": hint === undefined ? undefined : `${id}-hint`,
    onInput: (event: { readonly currentTarget: HTMLInputElement }) => {
      onInput(event.currentTarget.value);
    },
  } as const;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {kind === "secret" ? (
        <input {...common} type="password" />
      ) : (
        <input {...common} type="text" inputMode={kind === "number" ? "numeric" : "text"} />
      )}
      {hint === undefined ? null : (
        <span class="note" id={`${id}-hint`}>
          {hint}
        </span>
      )}
    </div>
  );
}

export function Choice(props: {
  label: string;
  value: string;
  options: readonly (readonly [string, string])[];
  onChange: (value: string) => void;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <select
        id={id}
        value={props.value}
        onChange={(event) => {
          props.onChange(event.currentTarget.value);
        }}
      >
        {props.options.map(([value, words]) => (
          <option key={value} value={value}>
            {words}
          </option>
        ))}
      </select>
    </div>
  );
}

/**
 * A dialog that asks before something is done. While it is open the act keeps its key, so that a second press after a lost answer
 * cannot do it twice.
 */
export function Act(props: {
  label: string;
  title: string;
  isDanger?: boolean;
  isDisabled?: boolean;
  /** The person must type this before the act is possible. */
  typed?: string;
  children?: ComponentChildren;
  run: () => Promise<unknown>;
  onDone?: () => void;
  /** Called when the dialog opens: a new act begins. */
  onOpen?: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (isOpen) dialog.current?.showModal();
  }, [isOpen]);
  const { isDanger = false, label, onOpen } = props;
  return (
    <>
      <button
        type="button"
        class={isDanger ? "danger" : ""}
        disabled={props.isDisabled === true}
        onClick={() => {
          onOpen?.();
          setOpen(true);
        }}
      >
        {label}
      </button>
      {isOpen ? (
        <dialog ref={dialog} onClose={() => setOpen(false)} aria-label={props.title}>
          <ActForm {...props} close={() => dialog.current?.close()} />
        </dialog>
      ) : null}
    </>
  );
}

function ActForm(props: Parameters<typeof Act>[0] & { close: () => void }) {
  const { title, typed, run, onDone, close, isDanger = false, label } = props;
  const [text, setText] = useState("");
  const [error, setError] = useState<unknown>(undefined);
  const [isBusy, setBusy] = useState(false);
  const submit = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      await run();
      close();
      onDone?.();
    } catch (thrown) {
      setError(thrown);
      setBusy(false);
    }
  };
  return (
    <form
      method="dialog"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <h2>{title}</h2>
      {props.children}
      {typed === undefined ? null : (
        <Field label={`Type ${typed} to go on`} name="confirm" value={text} onInput={setText} />
      )}
      {error === undefined ? null : <Problem error={error} />}
      <div class="buttons">
        <button type="button" onClick={close}>
          Cancel
        </button>
        <button
          type="submit"
          class={isDanger ? "danger solid" : "solid"}
          disabled={isBusy || (typed !== undefined && text !== typed)}
        >
          {isBusy ? "Working…" : label.replace("…", "")}
        </button>
      </div>
    </form>
  );
}
