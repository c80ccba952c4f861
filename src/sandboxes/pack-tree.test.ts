import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { afterEach, beforeEach, describe, test } from "node:test";
import { promisify } from "node:util";
import { gunzipSync, gzipSync } from "node:zlib";
import * as fc from "fast-check";
import { type Header, pack } from "tar-stream";
import { packTree } from "./pack-tree.ts";
import { linkStaysInside, partsInside } from "./tree-path.ts";
import { unpackTree } from "./unpack-tree.ts";

const run = promisify(execFile);
const long = `${"deep/".repeat(30)}file-with-a-long-name.txt`;
const files: Readonly<Record<string, string>> = {
  "a.txt": "a",
  "B.txt": "upper case sorts first, by bytes",
  "dir/run.sh": "#!/bin/sh\n",
  "dir/empty": "",
  "ünï/çødé.txt": "names beyond ASCII",
  [long]: "long",
  big: "x".repeat(200_000),
};

async function makeTree(folder: string, names: readonly string[]): Promise<void> {
  for (const name of names) {
    await mkdir(join(folder, name, ".."), { recursive: true });
    await writeFile(join(folder, name), files[name] ?? "");
  }
  await mkdir(join(folder, "hollow"));
  await chmod(join(folder, "dir/run.sh"), 0o700);
  await symlink("../a.txt", join(folder, "dir/link"));
}

describe("pack and unpack", () => {
  let base: string;
  const at = (...parts: string[]) => join(base, ...parts);
  beforeEach(async () => {
    base = await mkdtemp(join(tmpdir(), "holdfast-pack-"));
  });
  afterEach(() => rm(base, { recursive: true }));

  test("equal trees give equal bytes, whatever the order, times and permissions they were made with", async () => {
    await makeTree(at("one"), Object.keys(files));
    await makeTree(at("two"), Object.keys(files).toReversed());
    await utimes(at("two", "a.txt"), 1, 1);
    await chmod(at("two", "a.txt"), 0o600);
    await chmod(at("two", "dir"), 0o700);
    await packTree(at("one"), at("one.tar.gz"));
    await packTree(at("two"), at("two.tar.gz"));
    const [one, two] = [await readFile(at("one.tar.gz")), await readFile(at("two.tar.gz"))];
    assert.deepEqual(one, two);
    assert.deepEqual([...one.subarray(3, 10)], [0, 0, 0, 0, 0, 2, 255], "flags, time, level, system");
  });

  test("the tar inside is these bytes for ever", async () => {
    await mkdir(at("tree"));
    await writeFile(at("tree", "a.txt"), "a");
    await packTree(at("tree"), at("tree.tar.gz"));
    const tar = gunzipSync(await readFile(at("tree.tar.gz")));
    assert.equal(tar.length, 4 * 512);
    const digest = createHash("sha256").update(tar).digest("hex");
    assert.equal(digest, "d8f8896a814fd8ae9b15105f29f1c400eb6c9483b9ae4ef840e49e29ff5cd584");
  });

  test("what was packed is unpacked, and the manifest lists its files", async () => {
    await makeTree(at("tree"), Object.keys(files));
    const manifest = await packTree(at("tree"), at("tree.tar.gz"));
    await unpackTree(at("tree.tar.gz"), at("out"));
    for (const [name, content] of Object.entries(files)) {
      assert.equal(await readFile(at("out", name), "utf8"), content, name);
      const sha256 = createHash("sha256").update(content).digest("hex");
      const listed = manifest.find((file) => file.name === name);
      assert.deepEqual(listed, { name, bytes: Buffer.byteLength(content), sha256 });
    }
    assert.equal(manifest.length, Object.keys(files).length);
    assert.deepEqual(await readdir(at("out", "hollow")), []);
    assert.equal(await readlink(at("out", "dir/link")), "../a.txt");
    assert.equal((await lstat(at("out", "dir/run.sh"))).mode & 0o100, 0o100);
    assert.equal((await lstat(at("out", "a.txt"))).mode & 0o100, 0);
    await packTree(at("out"), at("again.tar.gz"));
    assert.deepEqual(await readFile(at("again.tar.gz")), await readFile(at("tree.tar.gz")));
  });

  test("the system's tar reads what is packed, and what it writes is unpacked", async () => {
    await makeTree(at("tree"), Object.keys(files));
    await packTree(at("tree"), at("tree.tar.gz"));
    await mkdir(at("tar"));
    await run("tar", ["-xzf", at("tree.tar.gz"), "-C", at("tar")]);
    await run("diff", ["-r", "--no-dereference", at("tree"), at("tar")]);
    for (const format of ["gnu", "pax", "ustar"]) {
      const name = `${format}.tar.gz`;
      await run("tar", [`--format=${format}`, "-czf", at(name), "-C", at("tree"), "."]);
      await unpackTree(at(name), at(format));
      await run("diff", ["-r", "--no-dereference", at("tree"), at(format)]);
    }
  });

  test("an archive that leads out of its folder is refused, and nothing of it is left", async () => {
    const bad: Record<string, (Partial<Header> & { name: string })[]> = {
      "a path above": [{ name: "../evil" }],
      "a path above, inside": [{ name: "a/../../evil" }],
      "an absolute path": [{ name: "/tmp/evil" }],
      "a link above": [{ name: "l", type: "symlink", linkname: "../evil" }],
      "an absolute link": [{ name: "l", type: "symlink", linkname: "/etc" }],
      "a link through a link": [
        { name: "d/up", type: "symlink", linkname: ".." },
        { name: "l", type: "symlink", linkname: "d/up/../.." },
      ],
      "a file through a link": [{ name: "l", type: "symlink", linkname: "." }, { name: "l/evil" }],
      "a file twice": [{ name: "a" }, { name: "a" }],
      "a hard link": [{ name: "l", type: "link", linkname: "a" }],
      "a device": [{ name: "d", type: "character-device" }],
      "a fifo": [{ name: "f", type: "fifo" }],
    };
    for (const [name, entries] of Object.entries(bad)) {
      const tar = pack();
      for (const entry of entries) tar.entry({ ...entry, size: 0 }, "");
      tar.finalize();
      await writeFile(at("bad.tar.gz"), gzipSync(await buffer(tar)));
      await assert.rejects(unpackTree(at("bad.tar.gz"), at("out")), /leads out|neither a file|EEXIST/, name);
      assert.deepEqual(await readdir(base), ["bad.tar.gz"], name);
    }
  });

  test("a damaged archive is refused, wherever it is cut or changed", async () => {
    await makeTree(at("tree"), ["a.txt", "dir/run.sh", "big"]);
    await packTree(at("tree"), at("tree.tar.gz"));
    const whole = await readFile(at("tree.tar.gz"));
    const tar = gunzipSync(whole);
    const damaged = [
      whole.subarray(0, whole.length - 4),
      whole.subarray(0, 100),
      gzipSync(tar.subarray(0, 700)),
      gzipSync(tar.subarray(0, tar.length - 1024)),
      gzipSync(Buffer.concat([Buffer.from("x"), tar.subarray(1)])),
      gzipSync(Buffer.concat([tar, Buffer.alloc(3_000_000)])),
      Buffer.from("not an archive"),
    ];
    for (const bytes of damaged) {
      await writeFile(at("bad.tar.gz"), bytes);
      await assert.rejects(unpackTree(at("bad.tar.gz"), at("out")));
    }
    assert.deepEqual((await readdir(base)).sort(), ["bad.tar.gz", "tree", "tree.tar.gz"]);
  });

  test("only an empty folder is unpacked into, and only plain trees are packed", async () => {
    await makeTree(at("tree"), ["a.txt", "dir/run.sh"]);
    await packTree(at("tree"), at("tree.tar.gz"));
    await assert.rejects(unpackTree(at("tree.tar.gz"), at("tree")), /not empty/);
    await assert.rejects(packTree(at("tree"), at("tree", "inside.tar.gz")), /inside/);
    await symlink("/etc/passwd", at("tree", "out"));
    await assert.rejects(packTree(at("tree"), at("again.tar.gz")), /leads out/);
    assert.deepEqual((await readdir(base)).sort(), ["tree", "tree.tar.gz"]);
  });

  test("no path or link target resolves to a place outside", () => {
    const path = fc
      .array(fc.constantFrom("..", ".", "", "a", "b"), { maxLength: 7 })
      .map((all) => all.join("/"));
    fc.assert(
      fc.property(path, path, (name, target) => {
        const parts = partsInside(name);
        if (parts === undefined || parts.length === 0) return;
        assert.ok(join("/root", ...parts).startsWith("/root/"));
        if (!linkStaysInside(parts.join("/"), target)) return;
        assert.match(join("/root", ...parts, "..", target), /^\/root(\/|$)/);
      }),
    );
  });
});
