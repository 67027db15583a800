/**
 * Who sends a request: asks the function of authorization, and refuses every client that it does not name.
 *
 *   - a function that throws, hangs or returns something else refuses the request, and holds no other one;
 *   - an identity whose time is over is refused, also if the function still returns it;
 *   - what an identity may do is worked out once for each object that the function returns.
 */

import type { Clock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { type Access, IdentityAccess, UNLIMITED } from "../access/access.ts";
import { checkIdentity } from "../access/check-identity.ts";
import type {
  Authorize,
  ClientCertificate,
  Credentials,
  Identity,
  IdentityRefusal,
} from "../access/identity.ts";
import { isOwn } from "../access/own-authorize.ts";
import { type ShownKey, shownKeysOf } from "../access/shown-keys.ts";
import type { Exchange } from "./exchange.ts";

export interface Gate {
  /** Whether requests need an identity. */
  readonly isGuarded: boolean;
  /** The caller on a route that needs no identity: its credential, if it has one, is not looked at. */
  readonly anonymous: Access;
  /** The API keys that requests may have, as far as a function of this package checks them. */
  shownKeys(): readonly ShownKey[];
  /** The access of the client that sends the request. Throws, or rejects with, the refusal. */
  admit(exchange: Exchange): Access | Promise<Access>;
}

/** The gate of a server without authentication: every client may do everything. */
export const OPEN_GATE: Gate = {
  isGuarded: false,
  anonymous: UNLIMITED,
  shownKeys: () => [],
  admit: () => UNLIMITED,
};

export interface GateOptions {
  readonly authorize: Authorize;
  readonly timeoutMs: number;
  readonly clock: Clock;
  /** Called with what is wrong with the function. */
  readonly onFault: (error: unknown) => void;
}

/** Makes the gate of a server with authentication. */
export function createGate(options: GateOptions): Gate {
  return new IdentityGate(options);
}

class IdentityGate implements Gate {
  readonly isGuarded = true;
  readonly anonymous: Access = new IdentityAccess({ name: "anonymous", grants: [] });
  readonly #options: GateOptions;
  readonly #known = new WeakMap<object, Access>();
  /** The identity of the last request, and its access: often the next one has it too. */
  #last: { readonly identity: object; readonly access: Access } | undefined;

  /** The function is one of ours. */
  readonly #isOwn: boolean;

  constructor(options: GateOptions) {
    this.#options = options;
    this.#isOwn = isOwn(options.authorize);
  }

  shownKeys(): readonly ShownKey[] {
    return shownKeysOf(this.#options.authorize);
  }

  admit(exchange: Exchange): Access | Promise<Access> {
    const { authorize } = this.#options;
    let answer: ReturnType<Authorize>;
    let isLater: boolean;
    try {
      answer = authorize(this.#isOwn ? exchange : new RequestCredentials(exchange));
      isLater = answer instanceof Promise;
    } catch (error) {
      throw this.#broken(error);
    }
    return isLater ? this.#wait(Promise.resolve(answer)) : this.#accessOf(answer);
  }

  async #wait(answer: Promise<Identity | IdentityRefusal>): Promise<Access> {
    const { clock, timeoutMs } = this.#options;
    let cancel: () => void = () => undefined;
    const late = new Promise<never>((_, reject) => {
      cancel = clock.after(timeoutMs, () => {
        reject(new Error(`authorize has not answered within ${timeoutMs} ms`));
      });
    });
    let settled: Identity | IdentityRefusal;
    try {
      settled = await Promise.race([answer, late]);
    } catch (error) {
      throw this.#broken(error);
    } finally {
      cancel();
    }
    return this.#accessOf(settled);
  }

  #accessOf(answer: unknown): Access {
    let read: Access | HapaxError;
    try {
      read = this.#read(answer);
    } catch (error) {
      // What comes from outside may throw wherever it is touched.
      throw this.#broken(error);
    }
    if (read instanceof HapaxError) throw read;
    return read;
  }

  #read(answer: unknown): Access | HapaxError {
    if (typeof answer !== "object" || answer === null) {
      throw new Error("authorize has returned neither an identity nor a refusal");
    }
    const access = this.#last?.identity === answer ? this.#last.access : this.#accessFor(answer);
    if (access instanceof HapaxError) return access;
    const isOver = access.expiresAtMs <= this.#options.clock.nowMs();
    return isOver ? refusalOf({ refused: "expired" }) : access;
  }

  #accessFor(answer: object): Access | HapaxError {
    let access = this.#known.get(answer);
    if (access === undefined) {
      if ("refused" in answer) return refusalOf(answer as IdentityRefusal);
      const problems: string[] = [];
      if (!checkIdentity(answer, (text) => problems.push(text))) {
        throw new Error(`authorize has returned no identity: ${problems.join("; ")}`);
      }
      access = new IdentityAccess(answer);
      this.#known.set(answer, access);
    }
    this.#last = { identity: answer, access };
    return access;
  }

  #broken(cause: unknown): HapaxError {
    this.#options.onFault(cause);
    return refusalOf({ refused: "unavailable" });
  }
}

/** What the function may see, and no more. `header` is its own, so that it can be taken out of the object. */
class RequestCredentials implements Credentials {
  readonly #exchange: Exchange;
  readonly header: (name: string) => string | undefined;

  constructor(exchange: Exchange) {
    this.#exchange = exchange;
    this.header = (name) => exchange.header(name);
  }

  get method(): string {
    return this.#exchange.method;
  }

  get path(): string {
    return this.#exchange.path;
  }

  get query(): string {
    return this.#exchange.query;
  }

  get peer(): string | undefined {
    return this.#exchange.peer;
  }

  get certificate(): ClientCertificate | undefined {
    return this.#exchange.certificate;
  }
}

const REFUSALS = {
  missing: ["unauthenticated", "the request has no credential"],
  invalid: ["unauthenticated", "the credential is not one of this server"],
  expired: ["credential_expired", "the credential has expired"],
  unavailable: ["authentication_unavailable", "the credential cannot be checked now"],
} as const;

function refusalOf({ refused, detail }: IdentityRefusal): HapaxError {
  const [code, otherwise] = Object.hasOwn(REFUSALS, refused)
    ? REFUSALS[refused]
    : REFUSALS.unavailable;
  return new HapaxError(code, typeof detail === "string" ? detail : otherwise);
}
