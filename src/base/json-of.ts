/** The type of a value after it was written as JSON and read again. exact-json.ts writes it. */

/** JSON drops a method of a class. A member that is a function is refused. */
type NotKept = ((...values: never[]) => unknown) | symbol;

type KeptNames<T> = {
  [Name in keyof T]: Name extends symbol ? never : T[Name] extends NotKept ? never : Name;
}[keyof T];

/** The type of a value read back from JSON: a `Date` becomes a text; what JSON keeps stays as it is. */
export type JsonOf<T> = unknown extends T
  ? T
  : T extends string | number | boolean | null | undefined | void
    ? T
    : T extends { toJSON(): infer Json }
      ? JsonOf<Json>
      : T extends readonly unknown[]
        ? { [At in keyof T]: JsonOf<T[At]> }
        : T extends object
          ? { [Name in keyof Pick<T, Exclude<KeptNames<T>, undefined>>]: JsonOf<T[Name]> }
          : never;
