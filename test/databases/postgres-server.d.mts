/** Types of postgres-server.mjs, for tests. */

export interface PostgresServer {
  /** The folder of its socket: what a client of another process needs to know. */
  readonly host: string;
  log(): string;
  stop(): Promise<void>;
}
export function findBinaries(): string | undefined;
export function startPostgresServer(options: { readonly fsync: boolean }): PostgresServer;

export interface Cluster {
  readonly folder: string;
  readonly data: string;
}

export interface RunningCluster {
  readonly pid: number | undefined;
  log(): string;
  end(signal: NodeJS.Signals): Promise<void>;
}

export function makeCluster(from?: string): Cluster;
export function launch(folder: string, data: string, settings: readonly string[]): RunningCluster;
export function becomeStandby(cluster: Cluster, primaryFolder: string, name: string): void;
