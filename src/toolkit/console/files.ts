/**
 * The page of the console as one script and one style. The build compiles src/dashboard/console and writes this module anew
 * (scripts/dashboard.mjs). In the sources it has nothing.
 */

/** The files of the page, as the build makes them. */
export interface ConsoleFiles {
  readonly script: string;
  readonly style: string;
  /** Changes with the files. */
  readonly version: string;
}

export const CONSOLE_FILES: ConsoleFiles | undefined = undefined;
