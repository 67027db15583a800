/**
 * The dashboard as one script and one style. The build compiles src/dashboard and writes this module anew (scripts/dashboard.mjs). In
 * the sources it has nothing, so a server that runs from the sources answers browsers with text.
 */

import type { DashboardFiles } from "./server/dashboard.ts";

export const DASHBOARD_FILES: DashboardFiles | undefined = undefined;
