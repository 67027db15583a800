/** Types of postgres-server.mjs, for tests. */

export interface PostgresServer {
  /** The folder of its socket: what a client of another process needs to know. */
  readonly host: string;
  log(): string;
  stop(): Promise<void>;
}
export function findBinaries(): string | undefined;
export function startPostgresServer(options: { readonly fsync: boolean }): PostgresServer;
