/** What the cases of transactions and groups share. PROTOCOL.md §19, §20. */

import { encodeFrame, TRANSACTION_TYPE } from "../protocol/transaction-frame.ts";
import {
  byKey,
  type CaseAnswer,
  type CaseStream,
  equal,
  type HeaderMap,
  JSON_TYPE,
  type Site,
} from "./extension-case-kit.ts";

export const TRANSACTIONS = "/_hapax/transactions";
export const FRAMED: HeaderMap = { "Content-Type": TRANSACTION_TYPE };

export type CaseOperation = Readonly<Record<string, unknown>>;

/** Returns headers with an unused key. */
export function newKey(): HeaderMap {
  return byKey(crypto.randomUUID());
}

export function appendOf(
  stream: CaseStream,
  text: string,
  more: CaseOperation = {},
): CaseOperation {
  return { append: { stream: pathOf(stream), text, ...more } };
}

/** Returns the path of a stream as bodies name it: not percent-encoded. */
export function pathOf(stream: CaseStream): string {
  return decodeURIComponent(stream.path);
}

export function transact(
  site: Site,
  identity: HeaderMap,
  operations: readonly CaseOperation[],
): Promise<CaseAnswer> {
  const body = JSON.stringify({ operations });
  return site.request("POST", TRANSACTIONS, { headers: { ...JSON_TYPE, ...identity }, body });
}

/** Makes the framed form: the length of the head, the head, and the bodies. */
export function frame(
  operations: readonly CaseOperation[],
  ...bodies: readonly Uint8Array[]
): Uint8Array<ArrayBuffer> {
  return new Uint8Array(encodeFrame(operations, bodies));
}

export function transactFramed(
  site: Site,
  identity: HeaderMap,
  body: Uint8Array<ArrayBuffer>,
): Promise<CaseAnswer> {
  return site.request("POST", TRANSACTIONS, { headers: { ...FRAMED, ...identity }, body });
}

/**
 * Throws unless the transaction is committed with these offsets, in this order. Undefined: the answer has no offset.
 */
export function committed(
  answer: CaseAnswer,
  expected: readonly (readonly [CaseStream, string] | undefined)[],
): void {
  const { status, operations } = answer.expect(200).json() as {
    readonly status: unknown;
    readonly operations: unknown;
  };
  equal(status, "committed", "status in the answer");
  const wanted = expected.map((each) =>
    each === undefined ? {} : { stream: pathOf(each[0]), nextOffset: each[1] },
  );
  equal(operations, wanted, "operations in the answer");
}

/** Throws unless the transaction is refused for the operation with this index. */
export function refusedAt(
  answer: CaseAnswer,
  operation: number,
  status: number,
  code: string,
): CaseOperation {
  const problem = answer.refused(status, code).json() as CaseOperation;
  equal(problem["operation"], operation, "operation in the refusal");
  return problem;
}

export interface CaseLease {
  readonly stream: string;
  readonly token: number;
  readonly offset: string;
}

export interface CaseClaim {
  readonly leases: readonly CaseLease[];
  readonly handOver: readonly string[];
  readonly leaseMs: number;
  readonly share: number;
}

/** A group of a case. */
export class CaseGroup {
  readonly site: Site;
  readonly name: string;

  constructor(site: Site, name: string = site.newGroup()) {
    this.site = site;
    this.name = name;
  }

  get path(): string {
    return `/_hapax/groups/${encodeURIComponent(this.name)}`;
  }

  put(options: CaseOperation = { pattern: this.site.pattern }): Promise<CaseAnswer> {
    return this.site.request("PUT", this.path, {
      headers: JSON_TYPE,
      body: JSON.stringify(options),
    });
  }

  /** Creates the group. If `options` names no pattern and no streams, it has all streams of the case. */
  async create(options: CaseOperation = {}): Promise<this> {
    (await this.put({ pattern: this.site.pattern, ...options })).expect(201);
    return this;
  }

  post(act: string, body: CaseOperation): Promise<CaseAnswer> {
    const request = { headers: JSON_TYPE, body: JSON.stringify(body) };
    return this.site.request("POST", `${this.path}/${act}`, request);
  }

  get(query = ""): Promise<CaseAnswer> {
    return this.site.request("GET", this.path + query);
  }

  delete(): Promise<CaseAnswer> {
    return this.site.request("DELETE", this.path);
  }

  async join(name = "worker"): Promise<CaseMember> {
    const { member } = (await this.post("join", { name })).expect(201).json() as {
      readonly member: string;
    };
    return new CaseMember(this, member);
  }

  /** Returns what the server knows of one stream. */
  async cursor(stream: CaseStream): Promise<CaseOperation> {
    const { cursors } = (await this.get()).expect(200).json() as {
      readonly cursors: readonly CaseOperation[];
    };
    return cursors.find((cursor) => cursor["stream"] === pathOf(stream)) ?? {};
  }

  /** Throws unless this is the committed offset of the stream. */
  async isAt(stream: CaseStream, offset: string): Promise<void> {
    equal((await this.cursor(stream))["offset"], offset, `the committed offset of ${stream.path}`);
  }
}

export class CaseMember {
  readonly group: CaseGroup;
  readonly id: string;

  constructor(group: CaseGroup, id: string) {
    this.group = group;
    this.id = id;
  }

  post(act: string, more: CaseOperation = {}): Promise<CaseAnswer> {
    return this.group.post(act, { member: this.id, ...more });
  }

  async claim(more: CaseOperation = {}): Promise<CaseClaim> {
    return (await this.post("claim", more)).expect(200).json() as CaseClaim;
  }

  commit(...commits: readonly CaseOperation[]): Promise<CaseAnswer> {
    return this.post("commit", { commits });
  }

  release(...leases: readonly CaseLease[]): Promise<CaseAnswer> {
    return this.post("release", { leases });
  }

  /** Claims, and returns the lease of a stream that the member must hold. */
  async lease(stream: CaseStream): Promise<CaseLease> {
    const { leases } = await this.claim();
    const found = leases.find((lease) => lease.stream === pathOf(stream));
    if (found === undefined) {
      throw new Error(`claim: expected a lease of ${stream.path}, got none`);
    }
    return found;
  }

  /** Returns a lease as operations of transactions name it. */
  claimed({ stream, token }: CaseLease): CaseOperation {
    return { group: this.group.name, member: this.id, stream, token };
  }
}
