import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { exampleJob, prepareRepositories } from "../../examples/engine-module/prepare.ts";
import { notesAgent } from "../../examples/notes-agent/prepare.ts";
import { chargeWork } from "../../examples/work-invoices/charge.ts";
import { startProvider } from "../../examples/work-invoices/provider.ts";
import type { Client, JobSubmission } from "../../src/client/client.ts";
import { seconds } from "../../src/core/time.ts";
import { parseAgentFile } from "../../src/wire/agent-file.ts";
import { checkSubmission } from "../../src/wire/submission.ts";
import { createWorker, submit, type Work } from "../../src/work/sdk.ts";
import type { ConsoleStand } from "../../test/support/console-stand.ts";
import { until } from "../../test/support/until.ts";

/** A busy machine takes its time. */
const patienceMs = 240_000;

/** Lets a little happen in a store, and gives each page's name and address. */
export async function furnish(
  { client, work }: ConsoleStand,
  scope: { readonly after: (hook: () => void | Promise<void>) => void },
  directory: string,
): Promise<Readonly<Record<string, string>>> {
  const repositories = join(directory, "repositories");
  await mkdir(repositories);
  await prepareRepositories(repositories);
  const example = async (stepMs: number) =>
    client.submitJob(checkSubmission(await exampleJob({ repositories, stepMs })));

  await client.submitJob(job("docs", "echo 'cannot find module \"left-pad\"' >&2; exit 1", { team: "web" }));
  const built = await example(0);
  await over(client, built.id);
  const session = await converse(client);
  const item = await charge(client, await work(), scope);
  const running = await example(4_000);
  await client.submitJob(
    job("api", 'for i in $(seq 1 600); do echo "step $i of 600"; sleep 0.3; done', { team: "core" }),
  );
  await client.submitJob(job("web", "sleep 1", { team: "web", branch: "main" }));
  const cancelled = await client.submitJob(job("nightly", "sleep 1", { schedule: "nightly" }));
  await client.cancelJob(cancelled.id, { reason: "superseded by a newer commit" });
  await until(
    "a phase of the running job is over",
    async () => (await client.listAttempts(running.id))[0]?.phases[0]?.state === "succeeded",
    patienceMs,
  );
  const [delivery] = (await client.listDeliveries({ limit: 1 }).page()).items;
  return {
    overview: "",
    jobs: "/jobs",
    job: `/jobs/${running.id}`,
    "job-over": `/jobs/${built.id}`,
    sessions: "/sessions",
    session: `/sessions/${session}`,
    work: "/work",
    "work-item": `/work/${item}`,
    deliveries: "/deliveries",
    delivery: `/deliveries/${delivery?.id ?? ""}`,
    commands: "/commands",
    changes: "/changes",
    system: "/system",
  };
}

function job(name: string, run: string, labels: Readonly<Record<string, string>>): JobSubmission {
  return {
    apiVersion: "holdfast/v1",
    kind: "Job",
    metadata: { name, labels: { ...labels } },
    spec: {
      deadline: "20m",
      attempts: 1,
      phases: [{ name: "build", kind: "compile", command: ["sh", "-ec", run], grace: "1s" }],
    },
  };
}

async function over(client: Client, id: string): Promise<void> {
  await until(`job ${id} is over`, async () => (await client.getJob(id)).finished_at, patienceMs);
}

/** The notes agent: asked for a note, granted what it needs, and asked again. */
async function converse(client: Client): Promise<string> {
  const agent = parseAgentFile(JSON.stringify(await notesAgent()), "the notes agent");
  await client.createAgent(agent);
  const session = await client.createSession({ agent: agent.metadata.name, labels: { team: "web" } });
  const say = async (text: string) => {
    const { id } = await client.admitActivation(session.id, { stimulus: { text } });
    const settled = () => client.getActivation(session.id, id);
    await until(
      `${text}: answered`,
      async () => ["committed", "waiting", "failed"].includes((await settled()).state),
      patienceMs,
    );
  };
  await say("add buy milk");
  await client.grantPermission(session.id, "notes.write");
  await until(
    "the note is kept",
    async () => (await client.getSession(session.id)).head_revision > 0,
    patienceMs,
  );
  await say("add call Ada about the release");
  await say("list");
  return session.id;
}

/** The invoices of the example, with a provider that refuses at first. Gives one that is tried again and again. */
async function charge(
  client: Client,
  work: Work,
  scope: { readonly after: (hook: () => void | Promise<void>) => void },
): Promise<string> {
  let refuses = true;
  const provider = await startProvider(() => (refuses ? "refuse" : null));
  scope.after(() => provider.close());
  const invoices = chargeWork(provider.url, seconds(1));
  const worker = await createWorker(work, { works: [invoices], concurrency: 5 });
  scope.after(() => worker.stop());
  const { id } = await submit(
    work,
    invoices,
    { invoice: "2026-001", cents: 4_900 },
    { key: "invoice-2026-001" },
  );
  await until("it was tried twice", async () => (await client.getWork(id)).attempts >= 2, patienceMs);
  refuses = false;
  for (let n = 2; n <= 9; n += 1) {
    const invoice = `2026-00${n}`;
    await submit(work, invoices, { invoice, cents: 100 * n }, { key: `invoice-${invoice}` });
  }
  await until(
    "the others are charged",
    async () => (await client.listWork({ state: "succeeded", limit: 20 }).page()).items.length >= 8,
    patienceMs,
  );
  return id;
}
