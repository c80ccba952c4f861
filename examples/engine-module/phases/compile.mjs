// Check that the trees are exactly the pinned commits, and run the engine of one on the content of the other.
import { readFile } from "node:fs/promises";
import { commitId, treeId, treeOf } from "./git-object.mjs";
import { holdfast, pins, run, step } from "./phase.mjs";

let done = 0;
for (const [name, pin] of Object.entries(pins)) {
  await step(`checking ${name} against its pin ${pin.slice(0, 10)}`, done * 25);
  await holdfast("download", "source", `${name}.tar.gz`, `${name}.tar.gz`);
  await holdfast("unpack", `${name}.tar.gz`, name);
  const commit = await readFile(`${name}/commit`);
  if (commitId(commit) !== pin) throw new Error(`${name}: this commit is not the pinned ${pin}`);
  const tree = await treeId(`${name}/tree`);
  if (tree !== treeOf(commit)) throw new Error(`${name}: the files are not those of ${pin}`);
  console.log(`  ${name} is exactly ${pin}`);
  done += 1;
}

await step("building the site", 50);
await run(process.execPath, ["engine/tree/build.mjs", "module/tree", "site"]);

await step("handing the site on", 85);
await holdfast("pack", "site", "site.tar.gz");
await holdfast("upload", "site.tar.gz", "site.tar.gz", "--media-type", "application/gzip");
