import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { type Environment, parseConfig } from "../config.ts";
import { openRuntime, type RuntimeKind, runtimeKinds } from "./runtimes.ts";

const open = (environment: Environment, kind: RuntimeKind = "kubernetes") =>
  openRuntime(parseConfig(environment), { kind, installation: "test" });

const kubeconfig = JSON.stringify({
  apiVersion: "v1",
  kind: "Config",
  "current-context": "here",
  clusters: [{ name: "here", cluster: { server: "https://127.0.0.1:6443" } }],
  users: [{ name: "here", user: { token: "t" } }],
  contexts: [{ name: "here", context: { cluster: "here", user: "here" } }],
});

test("G13: a runtime that is not configured whole is refused by the key that is missing", async () => {
  const namespace = { HOLDFAST_KUBERNETES_NAMESPACE: "sandboxes" };
  await assert.rejects(open({}, "process"), /HOLDFAST_SANDBOX_DIRECTORY is not set/);
  await assert.rejects(open({}), /HOLDFAST_KUBERNETES_NAMESPACE is not set/);
  await assert.rejects(open({}, "opensandbox"), /HOLDFAST_OPENSANDBOX_URL is not set/);
  await assert.rejects(open(namespace), /HOLDFAST_KUBECONFIG is not set, and this process runs in no pod/);
  await assert.rejects(
    open({ ...namespace, HOLDFAST_KUBECONFIG: "/nowhere" }),
    /HOLDFAST_KUBECONFIG: .*ENOENT/,
  );
});

test("each runtime is opened by what it needs and nothing of another's", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-open-runtime-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "config");
  writeFileSync(file, kubeconfig);
  const cluster = { HOLDFAST_KUBECONFIG: file, HOLDFAST_KUBERNETES_NAMESPACE: "sandboxes" };
  assert.equal((await open(cluster)).kind, "kubernetes");
  assert.equal((await open({ HOLDFAST_SANDBOX_DIRECTORY: folder }, "process")).kind, "process");
  const service = {
    HOLDFAST_OPENSANDBOX_URL: "http://127.0.0.1:8080",
    HOLDFAST_OPENSANDBOX_EGRESS: "*.a.test, b.test",
  };
  assert.equal((await open(service, "opensandbox")).kind, "opensandbox");
  assert.throws(() => parseConfig({ HOLDFAST_OPENSANDBOX_EGRESS: "https://a" }), /must be host names/);
  await assert.rejects(
    open({ ...cluster, HOLDFAST_KUBERNETES_CONTEXT: "elsewhere" }),
    /HOLDFAST_KUBECONFIG: the kubeconfig names no cluster/,
  );
});

test("every kind that the configuration takes can be chosen, and no other", () => {
  for (const kind of runtimeKinds) assert.equal(parseConfig({ HOLDFAST_RUNTIME: kind }).runtime, kind);
  const words = new RegExp(`must be one of ${runtimeKinds.join(", ")}, found`);
  assert.throws(() => parseConfig({ HOLDFAST_RUNTIME: "nothing" }), words);
});

test("the official client is loaded only where a cluster is asked for", () => {
  const script = `
    const { openRuntime } = await import(${JSON.stringify(import.meta.resolve("./runtimes.ts"))});
    const { parseConfig } = await import(${JSON.stringify(import.meta.resolve("../config.ts"))});
    const config = parseConfig({ HOLDFAST_SANDBOX_DIRECTORY: "/tmp/none" });
    await openRuntime(config, { kind: "process", installation: "test" });
    const { registerHooks } = await import("node:module");
    const seen = [];
    registerHooks({ resolve(name, context, next) { seen.push(name); return next(name, context); } });
    await import("@kubernetes/client-node");
    console.log(seen.length > 1 ? "loaded now" : "was there already");`;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", script], {
    cwd: join(import.meta.dirname, "../.."),
    encoding: "utf8",
  });
  assert.equal(stdout, "loaded now\n", stderr);
});
