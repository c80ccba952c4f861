import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import type { JobId } from "../../src/core/ids.ts";
import type { Report, Try } from "../fixtures/intruder.ts";
import type { PodObject } from "../support/kubernetes/pod-object.ts";
import { markedJob } from "../support/marked-job.ts";
import { openPodLab } from "../support/pod-lab.ts";
import { assertExactlyOnce, assertNothingLeft } from "../support/settled.ts";
import { until } from "../support/until.ts";

const program = resolve(import.meta.dirname, "../fixtures/intruder.ts");

test("E17 E18 E22 G13: a compile phase that tries what it may not is refused, and is given nothing to try it with", async (t) => {
  const lab = await openPodLab(t);
  const { arena } = lab;
  const gate = lab.gate("victims");

  // One attempt that has ended, and one that still runs.
  const first = lab.gate("first");
  const ended = await lab.submit("ended", [{ name: "compile", run: first.wait }]);
  const endedToken = await tokenOf(lab.running(ended));
  await first.open();
  await lab.ended(ended);
  const alive = await lab.submit("alive", [{ name: "compile", run: gate.wait }]);
  const aliveToken = await tokenOf(lab.running(alive));
  const grant = await ask(`${arena.shared.origin}/callback/v1/objects/secret.txt/upload`, aliveToken, {
    bytes: 6,
    sha256: "0".repeat(64),
    media_type: "text/plain",
  });

  const tries: Try[] = [
    { what: "its own progress", path: "/progress", body: { message: "here" } },
    { what: "no token", path: "/progress", token: null, body: { message: "here" } },
    {
      what: "the token of an attempt that has ended",
      path: "/progress",
      token: endedToken,
      body: { message: "x" },
    },
    {
      what: "a token of its own making",
      path: "/progress",
      token: altered(aliveToken),
      body: { message: "x" },
    },
    { what: "another's object", path: "/objects/compile/secret.txt/download" },
    {
      what: "another's capability, for more bytes",
      url: grant.url,
      method: "PUT",
      token: null,
      body: "other bytes",
    },
    {
      what: "another's capability, for other bytes",
      url: grant.url,
      method: "PUT",
      token: null,
      body: "SECRET",
    },
    { what: "another's capability, to read", url: grant.url, method: "GET", token: null },
    {
      what: "a capability of its own making",
      url: altered(grant.url),
      method: "PUT",
      token: null,
      body: "secret",
    },
    {
      what: "the pods",
      url: `${arena.cluster.connection().server}/api/v1/namespaces/sandboxes/pods`,
      method: "GET",
    },
  ];
  const report = join(arena.shared.directory, "report");
  const submission = markedJob(arena, "intruder", [{ name: "compile", run: `"$NODE" "${program}"` }]);
  const [phase] = submission.spec.phases;
  assert.ok(phase !== undefined);
  const intruder: JobId = await arena.submit({
    ...submission,
    spec: {
      ...submission.spec,
      phases: [{ ...phase, env: { ...phase.env, TRIES: JSON.stringify(tries), REPORT: report } }],
    },
  });
  const pod = await until("it has a pod", () =>
    lab.arena.pods().find(({ spec }) => JSON.stringify(spec).includes(program)),
  );
  await lab.ended(intruder);
  await assertExactlyOnce(arena, intruder, { state: "succeeded", attempts: 1 });
  const { answers, environment } = JSON.parse(await readFile(report, "utf8")) as Report;
  assert.deepEqual(answers, {
    "its own progress": "200",
    "no token": "401 unauthenticated",
    "the token of an attempt that has ended": "409 sandbox_fenced",
    "a token of its own making": "401 unauthenticated",
    "another's object": "404 not_found",
    "another's capability, for more bytes": "413 payload_too_large",
    "another's capability, for other bytes": "422 content_mismatch",
    "another's capability, to read": "405 method_not_allowed",
    "a capability of its own making": "403 capability_invalid",
    "the pods": "401 Unauthorized",
  });
  assertWithoutSecrets(environment, arena.shared);
  assertRestricted(pod);

  await gate.open();
  await lab.ended(alive);
  await assertExactlyOnce(arena, alive, { state: "succeeded", attempts: 1 });
  await assertNothingLeft(arena);
});

async function tokenOf(running: Promise<PodObject>): Promise<string> {
  const [container] = (await running).spec.containers;
  const found = container?.env?.find(({ name }) => name === "HOLDFAST_TOKEN")?.value;
  assert.ok(found !== undefined);
  return found;
}

async function ask(url: string, token: string, body: unknown): Promise<{ readonly url: string }> {
  const response = await fetch(url, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()) as { url: string };
}

/** The last character is another one. */
const altered = (text: string): string =>
  text.slice(0, -2) + (text.at(-2) === "A" ? "B" : "A") + text.slice(-1);

/** Neither the database, nor a key, nor the API server's token is in reach of a name. */
function assertWithoutSecrets(
  environment: Readonly<Record<string, string>>,
  { settings, callbackKey, blobKey, place }: Awaited<ReturnType<typeof openPodLab>>["arena"]["shared"],
): void {
  const own = ["MARKS", "NODE", "HELPER", "STEPS", "NODE_COMPILE_CACHE", "TRIES", "REPORT"];
  const given = ["CALLBACK_URL", "TOKEN", "JOB", "ATTEMPT", "PHASE", "SOURCES", "PINS"].map(
    (name) => `HOLDFAST_${name}`,
  );
  const shell = ["PATH", "HOME", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"];
  const known = new Set([...own, ...given, ...shell]);
  assert.deepEqual(
    Object.keys(environment).filter((name) => !known.has(name)),
    [],
  );
  const { password } = settings;
  const secrets = [password, callbackKey, blobKey, place.kind === "kubernetes" ? place.token : undefined];
  const text = JSON.stringify(environment);
  for (const secret of secrets) {
    if (typeof secret === "string" && secret !== "") assert.ok(!text.includes(secret));
  }
}

/** What the restricted profile asks for, no service account, and no names of services. */
function assertRestricted({ spec }: PodObject): void {
  assert.partialDeepStrictEqual(spec, {
    restartPolicy: "Never",
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
  });
  assert.equal(spec["serviceAccountName"] ?? "default", "default");
  for (const never of ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "ephemeralContainers"]) {
    assert.equal(spec[never] ?? false, false, never);
  }
  const volumes = spec["volumes"];
  assert.ok(Array.isArray(volumes));
  assert.ok(
    volumes.every((volume: object) => "emptyDir" in volume),
    "only folders of its own",
  );
  for (const container of spec.containers) {
    assert.partialDeepStrictEqual(container["securityContext"], {
      allowPrivilegeEscalation: false,
      privileged: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    });
    assert.ok(JSON.stringify(container["resources"]).includes("ephemeral-storage"));
  }
}
