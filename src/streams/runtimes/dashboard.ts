/** Loads the dashboard for runtimes that have room for it. */

import type { LoadDashboard } from "../server/dashboard.ts";

/** Loaded with the first visit of a browser: a server that no person looks at does not hold it in memory. */
export const loadDashboard: LoadDashboard = async () =>
  (await import("../dashboard-files.ts")).DASHBOARD_FILES;
