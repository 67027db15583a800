export interface DashboardBundle {
  readonly script: string;
  readonly style: string;
  readonly version: string;
  /** Of both files together. */
  readonly gzippedBytes: number;
}

export const DASHBOARD_BYTES_MAX: number;

export function bundleDashboard(base?: string, entry?: string): Promise<DashboardBundle>;
