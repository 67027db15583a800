// deploy/systemd, deploy/kubernetes and deploy/helm: checked with what the tests can have of the real tools.
import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterAll, describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { requirePart } from "../client/runtimes-kit.ts";
import { read, root } from "../kits/documents.ts";
import { unpackedWheel } from "../kits/wheels.ts";

interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: Readonly<Record<string, unknown>>;
}

const objectsOf = (text: string): readonly KubernetesObject[] =>
  parseAllDocuments(text).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS() as KubernetesObject;
  });

const manifests = objectsOf(read("deploy/kubernetes/hapax.yaml"));
const version = (JSON.parse(read("package.json")) as { readonly version: string }).version;
const folder = mkdtempSync(join(tmpdir(), "hapax-manifests-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}
interface Container {
  readonly image: string;
  readonly env: readonly { readonly name: string }[];
  readonly startupProbe: Probe;
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
}
interface Workload {
  readonly replicas: number;
  readonly template: {
    readonly spec: {
      readonly terminationGracePeriodSeconds: number;
      readonly containers: readonly [Container];
    };
  };
}

const workload = manifests.find(({ kind }) => kind === "StatefulSet")?.spec as unknown as Workload;
const [container] = workload.template.spec.containers;

describe("Kubernetes", () => {
  test("the objects are those that the page names", () => {
    expect(manifests.map(({ kind }) => kind)).toEqual([
      "Service",
      "StatefulSet",
      "PodDisruptionBudget",
      "NetworkPolicy",
    ]);
    expect(workload.replicas).toBe(1);
    expect(workload.template.spec.terminationGracePeriodSeconds).toBeGreaterThan(30);
  });

  // A download may take minutes.
  test(
    "the schemas of Kubernetes 1.37 take every object, and refuse a name that is none",
    { timeout: 300_000 },
    (context) => {
      const part = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/";
      const wheel = unpackedWheel("kubernetes-validate==1.37.0", part);
      const reason = "the schemas of Kubernetes could not be had: not tested";
      const schemas = requirePart(context, wheel, reason);
      const problemsOf = validatorOf(schemas);
      for (const object of manifests)
        expect([object.kind, problemsOf(object)]).toEqual([object.kind, []]);
      const [service] = manifests;
      const wrong = { ...service, spec: { ...service?.spec, portz: [] } } as KubernetesObject;
      expect(problemsOf(wrong).length).toBeGreaterThan(0);
    },
  );

  test("the probes are routes of the server, and the variables are those of the command", () => {
    const paths = [container.startupProbe, container.livenessProbe, container.readinessProbe];
    expect(paths.map(({ httpGet }) => httpGet.path)).toEqual(["/livez", "/livez", "/readyz"]);
    for (const { httpGet } of paths) expect(read("PROTOCOL.md")).toContain(`| \`${httpGet.path}\``);
    const help = spawnSync(process.execPath, ["dist/bin.js", "help", "serve"], {
      cwd: root,
      encoding: "utf8",
    }).stdout;
    const texts = ["deploy/docker/Dockerfile", "deploy/docker/compose.server.yaml"].map(read);
    const named = [
      ...container.env.map(({ name }) => name),
      ...texts.join("\n").matchAll(/\bHAPAX_\w+/g),
    ];
    const beside = ["HAPAX_DOMAIN", "HAPAX_UPSTREAM"]; // Of the Caddyfile.
    for (const name of named.map(String).filter((one) => !beside.includes(one)))
      expect(help).toContain(name);
    expect(container.image).toBe(`hapax:${version}`);
  });
});

/** What is wrong with an object, by the schema of its kind. */
function validatorOf(schemas: string): (object: KubernetesObject) => readonly string[] {
  const ajv = new Ajv2020({ strict: false, logger: false });
  const definitions = JSON.parse(
    readFileSync(join(schemas, "_definitions.json"), "utf8"),
  ) as object;
  ajv.addSchema(definitions, "_definitions.json");
  return ({ apiVersion, kind, ...rest }) => {
    const [group = "", ofGroup] = apiVersion.split("/");
    const suffix = ofGroup === undefined ? group : `${group.split(".")[0]}-${ofGroup}`;
    const file = join(schemas, `${kind.toLowerCase()}-${suffix}.json`);
    if (!existsSync(file)) throw new Error(`there is no schema for ${apiVersion} ${kind}`);
    // A schema has an id, under which the validator keeps it.
    const schema = JSON.parse(readFileSync(file, "utf8")) as { readonly $id: string };
    const validate = ajv.getSchema(schema.$id) ?? ajv.compile(schema);
    const isValid = validate({ apiVersion, kind, ...rest });
    if (isValid === true) return [];
    return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
  };
}

describe("Helm", () => {
  const values = parse(read("deploy/helm/values.yaml")) as Readonly<
    Record<string, string | number>
  >;
  const template = read("deploy/helm/templates/hapax.yaml");

  /** Inserts values as Helm does: `{{ .Values.x }}` as it is, `{{ .Values.x | quote }}` in quotes. The chart has nothing else. */
  function rendered(given: Readonly<Record<string, string | number>>): string {
    return template.replaceAll(
      /\{\{ \.Values\.(\w+)( \| quote)? \}\}/g,
      (_, name: string, quote) => {
        const value = given[name];
        if (value === undefined) throw new Error(`values.yaml has no ${name}`);
        return quote === undefined ? String(value) : JSON.stringify(String(value));
      },
    );
  }

  test("with its values the chart gives the objects of deploy/kubernetes", () => {
    expect(objectsOf(rendered(values))).toEqual(manifests);
    expect(rendered(values)).not.toContain("{{");
  });

  test("every value is used, and changes something", () => {
    for (const name of Object.keys(values)) {
      const other = name === "maxUnavailable" ? 0 : "other";
      expect(objectsOf(rendered({ ...values, [name]: other })), name).not.toEqual(manifests);
    }
  });

  test("the chart is of this version", () => {
    const chart = parse(read("deploy/helm/Chart.yaml")) as Readonly<Record<string, string>>;
    expect([chart["apiVersion"], chart["version"], chart["appVersion"]]).toEqual([
      "v2",
      version,
      version,
    ]);
  });
});

describe("systemd", () => {
  const unit = read("deploy/systemd/hapax.service");
  const analyse = (...args: readonly string[]) =>
    spawnSync("systemd-analyze", args, { cwd: folder, encoding: "utf8" });
  const isHere = analyse("--version").status === 0 ? true : undefined;

  test("the unit is valid, and exposes little", (context) => {
    requirePart(context, isHere, "systemd-analyze is not installed: not tested");
    copyFileSync(join(root, "deploy/systemd/hapax.service"), join(folder, "hapax.service"));
    const verified = analyse("verify", "./hapax.service");
    expect([verified.status, verified.stderr]).toEqual([0, ""]);
    const rated = analyse("security", "--offline=true", "--threshold=20", "./hapax.service");
    expect(rated.status, rated.stdout.split("\n").at(-2)).toBe(0);
    writeFileSync(join(folder, "wrong.service"), unit.replace("KillSignal=", "KillSignall="));
    expect(analyse("verify", "./wrong.service").stderr).toContain("KillSignall");
  });

  test("its command is one of the command line, and it waits longer than a long-poll", () => {
    const [, command = ""] = /^ExecStart=\/usr\/bin\/env hapax (.*)$/m.exec(unit) ?? [];
    writeFileSync(join(folder, "hapax.config.json"), '{"requireAuth": false}');
    const args = command
      .replace("serve ", "config check ")
      .replace("/etc/hapax/", `${folder}/`)
      .replace("/var/lib/hapax", join(folder, "data"))
      .split(" ");
    const checked = spawnSync(process.execPath, [join(root, "dist", "bin.js"), ...args], {
      encoding: "utf8",
    });
    expect(checked.status, checked.stderr).toBe(0);
    expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)?.[1])).toBeGreaterThan(30);
  });
});
