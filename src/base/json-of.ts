/** What a value is when it has been kept as JSON and read again, as a type. Beside exact-json.ts, which keeps it. */

/** A method of a class is not kept; a member that is a function is refused. */
type NotKept = ((...values: never[]) => unknown) | symbol;

type KeptNames<T> = {
  [Name in keyof T]: Name extends symbol ? never : T[Name] extends NotKept ? never : Name;
}[keyof T];

/** A `Date` is a text then; what JSON keeps as it is stays as it is. */
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
