/** What a client says of a server whose data went back in time. PROTOCOL.md §27.2. */

import { HapaxError } from "../../base/errors.ts";
import { splitLife, isOtherIncarnation } from "../../base/incarnation.ts";

/** The lives of the streams that a member has had, so that it notices when one of them has gone back. */
export class KnownLives {
  readonly #lives = new Map<string, string>();

  /** Throws `server_restored` for a life of another incarnation than before. A stream that was created anew is another stream. */
  meet(stream: string, life: string): void {
    const known = this.#lives.get(stream) ?? life;
    if (isOtherIncarnation(known, life)) throw serverRestored(stream, known, life);
    this.#lives.set(stream, life);
  }
}

export function serverRestored(stream: string, known: string, life: string): HapaxError {
  const [, now] = splitLife(life);
  const [, before] = splitLife(known);
  return new HapaxError(
    "server_restored",
    `${stream} is in incarnation ${now} of the server, and was in ${before}: its data went back in time in between`,
  );
}
