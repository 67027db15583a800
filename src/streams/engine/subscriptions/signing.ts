/**
 * The signer of this world. Its key follows from the secret of the store and a salt, which is made when a key is first needed and
 * kept with everything else. So receivers can go on trusting the key after a restart, and no copy of the data can sign.
 */

import { assert } from "../../../base/assert.ts";
import { HapaxError } from "../../../base/errors.ts";
import { type Random, systemRandom } from "../../../base/random.ts";
import { createSigner, deriveSigningKey, type Signer, type SigningSalt } from "../../signer.ts";
import type { Writer } from "../writer.ts";

export class SignerOfWorld {
  readonly #writer: Writer;
  readonly #random: Random;
  #signer: Promise<Signer> | undefined;

  constructor(writer: Writer, random: Random) {
    this.#writer = writer;
    this.#random = random;
  }

  get(): Promise<Signer> {
    if (this.#signer === undefined) {
      const opening = this.#open();
      this.#signer = opening;
      // The next caller tries again; this one gets the rejection itself.
      opening.catch(() => {
        if (this.#signer === opening) this.#signer = undefined;
      });
    }
    return this.#signer;
  }

  async #open(): Promise<Signer> {
    const { world, store } = this.#writer;
    // Before a salt is written down: a secret that cannot be kept must leave nothing behind.
    const secret = (await store.secret?.()) ?? systemRandom.id() + systemRandom.id();
    if (world.signingKeys.length === 0) {
      const atMs = this.#writer.nowMs();
      const { signingSalt = this.#random.id() } = store;
      const salt: SigningSalt = { salt: signingSalt, createdAtMs: atMs };
      this.#writer.room.admit(0);
      const key = JSON.stringify(salt);
      await this.#writer.submit([{ kind: "signing_key_added", atMs, key }]);
    } else {
      await this.#writer.settled();
    }
    const salts = world.signingKeys.map(parseSalt);
    assert(salts.length > 0, "the world has no key to sign with");
    return createSigner(await Promise.all(salts.map((salt) => deriveSigningKey(secret, salt))));
  }
}

function parseSalt(text: string): SigningSalt {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined; // Refused below, as every other text that is not a salt.
  }
  if (typeof value === "object" && value !== null && "salt" in value && "createdAtMs" in value) {
    const { salt, createdAtMs } = value;
    if (typeof salt === "string" && typeof createdAtMs === "number") return { salt, createdAtMs };
  }
  throw new HapaxError("invalid_options", "what is stored of a signing key is damaged");
}
