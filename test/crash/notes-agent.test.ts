import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { test } from "node:test";
import { notesAgent } from "../../examples/notes-agent/prepare.ts";
import { type AgentSubmission, type Client, createClient } from "../../src/client/client.ts";
import { uuidv7 } from "../../src/core/ids.ts";
import { unpackBundle } from "../../src/sessions/bundle-unpack.ts";
import type { ActivationView } from "../../src/wire/activation.ts";
import { type Started, startDev } from "../support/started.ts";
import { until } from "../support/until.ts";

/** The whole system as processes, on a store that outlives them, and a client of the newest. */
async function up(
  scope: { readonly after: (hook: () => void | Promise<void>) => void },
  directory: string,
): Promise<{ readonly system: Started; readonly client: Client }> {
  const system = startDev(scope, directory);
  await system.said(/Holdfast is up:\s+(\S+)/);
  const { url, token } = JSON.parse(await readFile(join(directory, "dev.json"), "utf8")) as {
    readonly url: string;
    readonly token: string;
  };
  return { system, client: createClient({ url, token }) };
}

/** What a session keeps, by path, out of the bundle that the store has. */
async function kept(client: Client, session: string, revision: number, folder: string) {
  const download = await client.downloadBundle(session, revision);
  const { bundle } = download.revision;
  assert.ok(bundle !== null);
  const bytes = Buffer.from(await new Response(download.body).arrayBuffer());
  assert.equal(createHash("sha256").update(bytes).digest("hex"), bundle.sha256);
  await unpackBundle(Readable.from([bytes]), { bytes: BigInt(bundle.bytes), sha256: bundle.sha256 }, folder);
  const files = await readdir(join(folder, "notes"));
  return Object.fromEntries(
    await Promise.all(
      files.sort().map(async (name) => [name, await readFile(join(folder, "notes", name), "utf8")] as const),
    ),
  );
}

const patienceMs = 120_000;

test("S7 S12 S13 G9: two turns of the notes agent, killed between and during; transcript and bundle are exactly as committed", async (t) => {
  // Hooks run in the order in which they were added; what was started last has to be ended first.
  const hooks: (() => void | Promise<void>)[] = [];
  const scope = { after: (hook: () => void | Promise<void>) => void hooks.unshift(hook) };
  t.after(async () => {
    for (const hook of hooks) await hook();
  });
  const base = await mkdtemp(join(tmpdir(), "hf-notes-"));
  scope.after(() => rm(base, { recursive: true, force: true, maxRetries: 5 }));
  const directory = join(base, "store");
  const settled = (client: Client, session: string, id: string): Promise<ActivationView> =>
    until(
      "the turn has come to something",
      async () => {
        const turn = await client.getActivation(session, id);
        return turn.finished_at !== null || turn.state === "waiting" ? turn : null;
      },
      patienceMs,
    );

  let { system, client } = await up(scope, directory);
  const agent = (await notesAgent({ stepMs: 700 })) as AgentSubmission; // the server's schema checks it
  await client.createAgent(agent);
  const session = (await client.createSession({ agent: "notes" })).id;

  // It asks once; the same turn goes on when it is granted.
  const first = uuidv7();
  await client.admitActivation(session, { id: first, stimulus: { text: "add milk" } });
  const waiting = await settled(client, session, first);
  assert.deepEqual(
    [waiting.state, waiting.required_action?.type, (await client.getSession(session)).head_revision],
    ["waiting", "grant_permission", 0],
  );
  await client.grantPermission(session, "notes.write");
  const milk = await settled(client, session, first);
  assert.deepEqual([milk.state, milk.revision, milk.reply], ["committed", 1, { text: "Kept as note 1." }]);

  // Between two turns.
  system.signalGroup("SIGKILL");
  await system.ended;
  ({ system, client } = await up(scope, directory));
  // Cleaning up after it may have counted on, and nothing else.
  const { resource_version: version, ...after } = await client.getActivation(session, first);
  const { resource_version: before, ...told } = milk;
  assert.deepEqual(after, told);
  assert.ok(BigInt(version) >= BigInt(before), `version ${version} after ${before}`);

  // During one: it has begun to write, and has said so.
  const second = uuidv7();
  const { cursor } = await client.listActivations(session).page();
  const sent = { id: second, stimulus: { text: "add bread" } };
  await client.admitActivation(session, sent);
  for await (const { operation, body } of client.watch({ after: cursor, session })) {
    if (operation === "activation.event" && (body as { name?: string }).name === "notes.adding") break;
  }
  system.signalGroup("SIGKILL");
  await system.ended;
  ({ system, client } = await up(scope, directory));
  // Whoever doesn't know whether it was heard says it again.
  assert.equal((await client.admitActivation(session, sent)).ordinal, 2);
  const bread = await settled(client, session, second);
  assert.deepEqual([bread.state, bread.revision, bread.reply], ["committed", 2, { text: "Kept as note 2." }]);

  const third = uuidv7();
  await client.admitActivation(session, { id: third, stimulus: { text: "list" } });
  assert.deepEqual((await settled(client, session, third)).reply, { text: "1. milk\n2. bread" });

  const transcript: unknown[] = [];
  for await (const turn of client.listActivations(session)) {
    transcript.push([turn.ordinal, turn.stimulus["text"], turn.state, turn.revision, turn.base_revision]);
  }
  assert.deepEqual(transcript, [
    [1, "add milk", "committed", 1, 0],
    [2, "add bread", "committed", 2, 1],
    [3, "list", "committed", 3, 2],
  ]);
  assert.deepEqual(await kept(client, session, 1, join(base, "one")), { "1.txt": "milk" });
  assert.deepEqual(await kept(client, session, 2, join(base, "two")), { "1.txt": "milk", "2.txt": "bread" });
  // A turn that changed nothing has what its head had.
  const revisions: unknown[] = [];
  for await (const { revision, bundle, activation_id } of client.listRevisions(session)) {
    revisions.push([revision, bundle?.sha256, activation_id]);
  }
  const [last, head] = revisions as [unknown[], unknown[]];
  assert.deepEqual([last[1], last[2], head[2]], [head[1], third, second]);
  const report = await client.doctor();
  assert.deepEqual(report.findings, []);
});
