import { createHash } from "node:crypto";
import { lstat, readdir, readFile, readlink } from "node:fs/promises";
import { join } from "node:path";

/**
 * A commit id digests the commit, which names its tree, which digests every file. So whoever has the raw commit
 * and the files can prove, without git and without the repository, that the files are exactly that commit.
 */
export function commitId(raw) {
  return objectId("commit", raw).toString("hex");
}

export function treeOf(raw) {
  return /^tree ([0-9a-f]+)\n/.exec(raw.toString("latin1"))?.[1];
}

export async function treeId(folder) {
  return (await hashTree(folder)).toString("hex");
}

async function hashTree(folder) {
  const entries = [];
  for (const name of await readdir(folder)) {
    const place = join(folder, name);
    const found = await lstat(place);
    if (found.isDirectory()) {
      // Git knows no empty folders.
      if ((await readdir(place)).length > 0) entries.push({ name, mode: "40000", id: await hashTree(place) });
    } else if (found.isSymbolicLink()) {
      entries.push({ name, mode: "120000", id: objectId("blob", Buffer.from(await readlink(place))) });
    } else {
      const mode = (found.mode & 0o100) === 0 ? "100644" : "100755";
      entries.push({ name, mode, id: objectId("blob", await readFile(place)) });
    }
  }
  // Git sorts by bytes, and a folder as if its name ended in a slash.
  const key = ({ name, mode }) => Buffer.from(mode === "40000" ? `${name}/` : name);
  entries.sort((a, b) => Buffer.compare(key(a), key(b)));
  return objectId(
    "tree",
    Buffer.concat(entries.flatMap(({ name, mode, id }) => [Buffer.from(`${mode} ${name}\0`), id])),
  );
}

function objectId(type, bytes) {
  return createHash("sha1").update(`${type} ${bytes.length}\0`).update(bytes).digest();
}
