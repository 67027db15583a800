// Imports entry points of the built package, as files, and prints those that do not load. Run by Node, Bun and Deno.
const [, , ...files] = process.argv;
const wrong = [];
for (const file of files) {
  try {
    const names = Object.keys(await import(file));
    if (names.length === 0) wrong.push(`${file}: exports nothing`);
  } catch (error) {
    wrong.push(`${file}: ${String(error)}`);
  }
}
console.log(JSON.stringify({ loaded: files.length - wrong.length, wrong }));
process.exit(0);
