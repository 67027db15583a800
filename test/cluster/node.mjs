// A node of the cluster tests: the built one, with a lease that a test chooses.
//
//   node test/cluster/node.mjs '{"database":"postgres://…","node":"n1","leaseMs":1000,…}'

const { clockOffMs = 0, ...options } = JSON.parse(process.argv[2] ?? "{}");
if (clockOffMs !== 0) {
  const now = Date.now;
  Date.now = () => now() + clockOffMs;
}
const { startClusterNode } = await import("../../dist/streams/runtimes/node-cluster.js");
const node = await startClusterNode({
  port: 0,
  peers: "127.0.0.1:0",
  ...options,
  log: (entry) => {
    if (entry.event !== "audit") console.error(`${options.node}: ${entry.message}`);
  },
});
process.on("message", ({ blockMs }) => {
  const endMs = performance.now() + blockMs;
  while (performance.now() < endMs); // As a long computation does.
});
process.once("SIGTERM", () => void node.stop().then(() => process.exit(0)));
// The test process has ended: nothing else would stop this one.
process.on("disconnect", () => process.exit(0));
console.log(`hapax listening on ${node.url} (durability: ${node.durability})`);
