/**
 * Everything a command may touch comes in through the context, so that tests run commands in their
 * own process with their own output, time and signals. `bin.ts` builds the real one.
 */

import type { Random } from "../base/random.ts";
import type { Dynamic } from "../client/options.ts";
import type { KeyChange, ApiKeyRecord } from "../streams/access/key-document.ts";
import type { Quotas } from "../streams/access/identity.ts";
import type { AuditEntry, Log, LogLevel } from "../streams/log.ts";

export interface Output {
  /** Settles when the other side has taken the bytes: a slow reader slows the command down. */
  write(chunk: string | Uint8Array): Promise<void>;
  readonly isTerminal: boolean;
}

export interface Input {
  readonly isTerminal: boolean;
  readonly bytes: AsyncIterable<Uint8Array>;
}

export type StopSignal = "SIGINT" | "SIGTERM";

/** What `serve` hands to the runtime. Each member has a row in the table of options. */
export interface ServeOptions {
  readonly host: string;
  readonly port: number;
  /** Undefined: in memory, or in the database of `store`. */
  readonly dir?: string;
  /** The URL of a PostgreSQL that has the streams. Undefined: in the directory, or in memory. */
  readonly store?: string;
  /** What to do if another server owns the streams of the database. */
  readonly takeover: "refuse" | "wait";
  /** What makes a commit in the database survive the loss of a machine. */
  readonly replication: "standby" | "storage";
  /** The name of this server in the database. Undefined: random. */
  readonly node?: string;
  /** `host:port` for the other nodes of a cluster. Undefined: one server owns all streams. */
  readonly peers?: string;
  /** The file with the secret that the nodes share. */
  readonly peerKeyFile?: string;
  /** Where clients and other nodes reach this one. Undefined: the address that it listens on. */
  readonly advertise?: string;
  /** A node keeps copies in memory of what it would own next. */
  readonly warmCopies: boolean;
  readonly durability: "replicated" | "fsync" | "os";
  /** The file of API keys. Undefined: `tokens.json` in the directory, if there is one. */
  readonly tokensFile?: string;
  /** One token with all rights. It comes from the environment alone: a flag would show it to all users, a file would keep it. */
  readonly serverToken?: string;
  /** Refuses to start without a file of keys, a token, a provider or keys of signed URLs. */
  readonly requireAuth: boolean;
  readonly longPollMs: number;
  readonly bodyBytesMax: number;
  readonly sseSecondsMax: number;
  readonly keyWindowSeconds: number;
  readonly keyMax: number;
  readonly keyOverflow: "evict" | "reject";
  readonly retentionSeconds: number;
  readonly retentionBytes: number;
  readonly publicUrl?: string;
  /** Undefined: in clear text. */
  readonly tls?: {
    readonly certFile: string;
    readonly keyFile: string;
    readonly clientCaFile?: string;
  };
  /** Tokens of an identity provider: where its keys are. Undefined: none are accepted. */
  readonly jwtJwks?: string;
  readonly jwtIssuer?: string;
  readonly jwtAudience?: readonly string[];
  readonly jwtClaim: string;
  readonly jwtLeewaySeconds: number;
  /** The keys of signed URLs. Undefined: none are accepted. */
  readonly signingKeysFile?: string;
  readonly corsOrigins: "*" | readonly string[];
  readonly insecurePublic: boolean;
  /** Of identities without their own. */
  readonly quotas: Quotas;
  readonly stateOffsets: boolean;
  readonly registry: boolean;
  readonly testFaults: boolean;
  readonly allowLoopbackWebhooks: boolean;
  /** `auto`: text on a terminal, JSON lines elsewhere. */
  readonly logFormat: "auto" | "text" | "json";
  readonly logLevel: LogLevel;
  readonly logRequests: "none" | "errors" | "all";
  readonly logSample: number;
  /** Undefined: audit entries go to stderr. */
  readonly auditFile?: string;
}

/** What a server tells while it runs. */
export interface ServeListeners {
  readonly log: Log;
  /** Gets an entry for each act that an operator must be able to find again. */
  readonly onAudit: (entry: AuditEntry) => void;
}

export interface RunningServer {
  readonly url: string;
  readonly durability: string;
  /** Puts new options in force, as far as a running server can, and says which. Throws if they are not valid. */
  reload(options: ServeOptions): { readonly changed: readonly string[] };
  stop(): Promise<void>;
}

/** The file of API keys. */
export interface KeyFiles {
  /** Undefined: there is no file. */
  read(path: string): Promise<readonly ApiKeyRecord[] | undefined>;
  /** `decide` gets the keys of this moment, and no other change comes in between. */
  change<T>(path: string, decide: (keys: readonly ApiKeyRecord[]) => KeyChange<T>): Promise<T>;
}

export interface Context {
  readonly stdin: Input;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The token for the server of `--url`. Only commands that talk to a server have it. */
  readonly token?: Dynamic | undefined;
  readonly fetch: typeof globalThis.fetch;
  readonly random: Random;
  nowMs(): number;
  /** Unlike a timer of the clock port it keeps the process alive, because a command waits for it. */
  wait(delayMs: number, signal?: AbortSignal): Promise<void>;
  openFile(path: string): AsyncIterable<Uint8Array>;
  /** The text of a file that only its owner may read. Throws for any other one. */
  readSecretFile(path: string): Promise<string>;
  readonly keyFiles: KeyFiles;
  /** Asks a person at the terminal. */
  ask(question: string): Promise<string>;
  /** The returned function removes the listener. */
  onSignal(listener: (signal: StopSignal) => void): () => void;
  /** Called when the configuration is to be read again. The returned function removes the listener. */
  onReload(listener: () => void): () => void;
  exitNow(code: number): void;
  version(): Promise<string>;
  startServer(options: ServeOptions, listeners: ServeListeners): Promise<RunningServer>;
}
