/** The JSON Schema of the configuration file, made from the table of options. Editors and other programs use it. */

import type { OptionTable } from "./configuration.ts";

export function configSchema(table: OptionTable): Readonly<Record<string, unknown>> {
  const properties = Object.entries(table).map(([member, row]) => {
    const { flag, env, help, kind, fallback, reload } = row;
    const when = reload === "live" ? "SIGHUP reloads it" : "A change needs a restart";
    const description = `${help}. Flag --${flag}, variable ${env}. ${when}.`;
    const known = fallback === undefined ? {} : { default: fallback };
    return [member, { description, ...kind.schema, ...known }] as const;
  });
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "hapax.config.json",
    description:
      "The configuration of `hapax serve`. A flag wins over a variable, a variable over this file.",
    type: "object",
    properties: {
      $schema: { description: "Where this schema is, for editors.", type: "string" },
      ...Object.fromEntries(properties),
    },
    additionalProperties: false,
  };
}
