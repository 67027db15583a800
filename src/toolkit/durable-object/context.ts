/**
 * What this wing needs of the state of a Durable Object, as types of its own: `ctx` of `cloudflare:workers` is one, and nothing
 * has to be installed for it.
 */

/** A row as `ctx.storage.sql` reads it. */
export type ObjectRow = Readonly<Record<string, unknown>>;

/** `ctx.storage.sql`. */
export interface ObjectSql {
  exec(query: string, ...bindings: unknown[]): { toArray(): readonly object[] };
}

/** The members of `ctx.storage` of an object with SQLite that alarms and tables use. */
export interface ObjectAlarmStorage {
  readonly sql: ObjectSql;
  transactionSync<T>(work: () => T): T;
  getAlarm(): Promise<number | null>;
  setAlarm(atMs: number): Promise<void>;
}

/** `ctx.storage` as `exportObject` and `importObject` need it. */
export interface ObjectTableStorage extends ObjectAlarmStorage {
  readonly sql: ObjectSql & { readonly databaseSize: number };
  /** The keys of `ctx.storage.put`, without promises. */
  readonly kv: {
    list(): Iterable<[string, unknown]>;
    put(key: string, value: unknown): void;
    delete(key: string): unknown;
  };
  sync(): Promise<void>;
}

/** Storages whose tables were replaced in this life: what an object knows in memory does not fit them any more. */
export const replacedStorages = new WeakSet<object>();

/** Runs a statement, and reads all of its rows before the next one. */
export function objectRows(
  sql: ObjectSql,
  query: string,
  ...bindings: unknown[]
): readonly ObjectRow[] {
  // Cast: rows are objects with a member for each column.
  return sql.exec(query, ...bindings).toArray() as readonly ObjectRow[];
}
