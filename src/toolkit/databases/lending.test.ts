import { describe, expect, test } from "vitest";
import { Loan, refuseControl } from "./lending.ts";

describe("a stand-in", () => {
  const lending = {
    before: () => undefined,
    answer: (_name: PropertyKey, result: object, lend: (target: object) => object) => lend(result),
  };

  test("has members that are fixed, as transactions of better-sqlite3 have them, and ends with the others", () => {
    const nested = Object.defineProperties((value: number) => value, {
      immediate: { value: (value: number) => value + 1 },
    }) as ((value: number) => number) & { readonly immediate: (value: number) => number };
    const client = Object.freeze({ name: "client", transaction: () => nested });
    const loan = new Loan(client, lending);
    const run = loan.tx.transaction();
    expect([run(1), run.immediate(1)]).toEqual([1, 2]);
    loan.end();
    for (const late of [() => run(1), () => run.immediate(1), () => loan.tx.transaction()])
      expect(late).toThrow("the transaction has ended");
  });

  test("looks as the object that it stands for", () => {
    class Client {
      readonly #secret = 42;
      open = true;
      reveal(): number {
        return this.#secret;
      }
    }
    const client = new Client();
    const { tx } = new Loan(client, lending);
    expect(tx).toBeInstanceOf(Client);
    expect([tx.reveal(), Object.keys(tx), "open" in tx, Object.entries(tx)]).toEqual([
      42,
      ["open"],
      true,
      [["open", true]],
    ]);
    tx.open = false;
    Object.defineProperty(tx, "more", { value: 1, configurable: true, writable: true });
    expect(client).toMatchObject({ open: false, more: 1 });
  });
});

describe("a text", () => {
  test.each([
    String.raw`INSERT INTO t VALUES (E'it\'s; commit; \'')`,
    String.raw`INSERT INTO t VALUES (e'\\'); SELECT 'commit'`,
    `INSERT INTO t VALUES ('\\'); SELECT 'x; commit'`,
  ])("with the word in a string is the user's: %s", (text) => {
    expect(() => {
      refuseControl(text);
    }).not.toThrow();
  });

  test("of any length is read in one pass", () => {
    const long = "a".repeat(20_000_000);
    const tags = Array.from({ length: 150_000 }, (_, at) => `$t${at}$`).join(" ");
    // By steps that grow with the square it does not end in minutes; by recursion it ends with an overflow.
    for (const text of [`'${long}'`, `"${long}"`, `E'${long}'`, `$$${long}$$`, `/*${long}*/`, tags])
      expect(() => {
        refuseControl(`INSERT INTO t VALUES (${text}) -- begin`);
      }).not.toThrow();
  });

  test.each([
    "$$ $$; COMMIT",
    "$a$ $$ $b$ $a$; COMMIT",
    "SELECT $1, x$y$; COMMIT",
    "SELECT 'it''s'; COMMIT",
    "/* ' */ COMMIT",
    "-- '\nCOMMIT",
  ])("with the word outside of what is quoted is refused: %s", (text) => {
    expect(() => {
      refuseControl(text);
    }).toThrow("the work ran COMMIT");
  });

  test.each(["$$; COMMIT; $$", "$a$ $$; COMMIT; $$ $a$", "'; COMMIT;'", `"; COMMIT;"`])(
    "with the word inside of what is quoted is the user's: %s",
    (text) => {
      expect(() => {
        refuseControl(`SELECT ${text}`);
      }).not.toThrow();
    },
  );

  test.each([String.raw`SELECT E'\''; COMMIT; --'`, String.raw`SELECT '\'; COMMIT`])(
    "with the word behind a string is refused: %s",
    (text) => {
      expect(() => {
        refuseControl(text);
      }).toThrow("the work ran COMMIT");
    },
  );
});
