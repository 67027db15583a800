/** Several streams over one connection, for the description of the interface. PROTOCOL.md §7.12. */

import { TEXT } from "./open-api-components.ts";
import type { OperationDetails } from "./open-api-details.ts";

export const FOLLOW_OPERATIONS: Readonly<Record<string, OperationDetails>> = {
  "GET /_hapax/follow": {
    parameters: [
      "followedStream",
      "followedOffset",
      "followedLife",
      "stateOffsets",
      "Last-Event-ID",
    ],
    answers: {
      200: { description: "Events of all the streams.", content: { "text/event-stream": TEXT } },
      204: { description: "The reader has had all events of all the streams." },
    },
    refusals: ["not_found"],
  },
};
