/** What the commands for streams in PostgreSQL share: the URL, the schema, and errors that say what to do. */

import { isHapaxError } from "../base/errors.ts";
import type { Invocation, OptionSpec } from "./command.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";

const DATABASE_URL = /^postgres(ql)?:\/\/./i;

export const SCHEMA_OPTION: OptionSpec = {
  name: "schema",
  value: "name",
  help: "the schema that has the tables (default hapax)",
};

export function isDatabase(place: string): boolean {
  return DATABASE_URL.test(place);
}

export function requireDatabase(url: string): string {
  if (!isDatabase(url)) {
    throw usageFailure("--store is a URL that begins with postgres://", [
      "put the password into HAPAX_STORE or PGPASSWORD",
    ]);
  }
  return url;
}

export function schemaOf(invocation: Invocation): string {
  return invocation.value("schema") ?? "hapax";
}

/** Errors of the store say what to do. Others are those of the client: the database cannot be reached, or refuses. */
export function asDatabaseFailure(error: unknown): unknown {
  if (error instanceof CommandFailure || isOfProgram(error)) return error;
  if (!isHapaxError(error)) {
    const reason = error instanceof Error && error.message !== "" ? error.message : String(error);
    return new CommandFailure(
      EXIT.unreachable,
      `the database does not answer as it should: ${reason}`,
      ["check the URL, the password and the rights of the role"],
      { code: "unreachable" },
      { cause: error },
    );
  }
  const exit =
    error.code === "unreachable"
      ? EXIT.unreachable
      : error.code === "invalid_options" || error.code === "not_found"
        ? EXIT.usage
        : EXIT.refused;
  return new CommandFailure(
    exit,
    error.message,
    [error.help],
    { code: error.code },
    { cause: error },
  );
}

/** A bug of ours keeps its stack. */
function isOfProgram(error: unknown): boolean {
  return (
    error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError
  );
}
