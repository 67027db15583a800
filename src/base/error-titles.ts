/** What each error is called: the titles of servers, and those of errors that only the toolkit and the client make. */

import type { ErrorCode } from "./error-table.ts";
import { SERVER_TITLES } from "./server-error-titles.ts";

/** No server of streams answers these. */
export const OTHER_TITLES = {
  saga_not_found: "No such saga",
  in_progress: "The work of this key is in progress",
  outcome_unknown: "The work began; Hapax does not know whether it had its effect",
  attempts_exhausted: "The work was begun as often as allowed, and never ended",
  act_refused: "The saga is not in a state for this act",
  failure_kept: "The work has failed, and its failure is kept",
  answer_not_kept: "The work is done, but its answer was too large to keep",
  position_lost: "The position of a relay is not in this database any more",
  schema_newer: "The tables were made by a newer version",
  refused: "The server refused the call without one of these codes",
  producer_full: "The producer holds as much unsent data as it may",
  producer_closed: "The producer was closed or given up",
} as const satisfies Partial<Record<ErrorCode, string>>;

export const ERROR_TITLES: Readonly<Record<ErrorCode, string>> = {
  ...SERVER_TITLES,
  ...OTHER_TITLES,
};
