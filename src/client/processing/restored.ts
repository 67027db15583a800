/** What a client says of a server whose data went back in time. PROTOCOL.md §30.2. */

import { HapaxError } from "../../base/errors.ts";
import { splitLife } from "../../base/incarnation.ts";

export function serverRestored(stream: string, known: string, life: string): HapaxError {
  const [, now] = splitLife(life);
  const [, before] = splitLife(known);
  return new HapaxError(
    "server_restored",
    `${stream} is in incarnation ${now} of the server, and was in ${before}: its data went back in time in between`,
  );
}
