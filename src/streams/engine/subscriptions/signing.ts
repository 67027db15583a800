/**
 * The signer of this world. Its key is made when it is first needed, and kept with everything else, so
 * that receivers can go on trusting it after a restart.
 */

import { assert } from "../../../base/assert.ts";
import { HapaxError } from "../../../base/errors.ts";
import { createSigner, generateSigningKey, type Signer, type SigningKey } from "../../signer.ts";
import type { Writer } from "../writer.ts";

export class SignerOfWorld {
  readonly #writer: Writer;
  #signer: Promise<Signer> | undefined;

  constructor(writer: Writer) {
    this.#writer = writer;
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
    const { world } = this.#writer;
    if (world.signingKeys.length === 0) {
      const key = JSON.stringify(await generateSigningKey(this.#writer.nowMs()));
      const atMs = this.#writer.nowMs();
      this.#writer.room.admit(0);
      await this.#writer.submit([{ kind: "signing_key_added", atMs, key }]);
    } else {
      await this.#writer.settled();
    }
    assert(world.signingKeys.length > 0, "the world has no key to sign with");
    return createSigner(world.signingKeys.map(parseKey));
  }
}

function parseKey(text: string): SigningKey {
  try {
    return JSON.parse(text) as SigningKey; // Written above; the signer checks that the key is whole.
  } catch {
    // The cause is left out on purpose: it would quote the key.
    throw new HapaxError("invalid_options", "a stored signing key is damaged");
  }
}
