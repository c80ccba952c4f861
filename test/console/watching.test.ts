import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before, test } from "node:test";
import type { BrowserContext, Page } from "playwright-core";
import { exampleJob, prepareRepositories } from "../../examples/engine-module/prepare.ts";
import { notesAgent } from "../../examples/notes-agent/prepare.ts";
import { chargeWork } from "../../examples/work-invoices/charge.ts";
import type { AgentSubmission, JobSubmission } from "../../src/client/client.ts";
import { createWorker, submit } from "../../src/work/sdk.ts";
import { browserTests, faultsOf, openBrowser, signIn } from "../support/browser.ts";
import { type ConsoleStand, consoleStand } from "../support/console-stand.ts";
import { shellJob } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { goWithin, storedText } from "./in-page.ts";

browserTests("watching and acting", (scope) => {
  let stand: ConsoleStand;
  let context: BrowserContext;
  let page: Page;
  let faults: string[] = [];

  before(async () => {
    stand = await consoleStand(scope);
    context = await openBrowser(scope);
    page = await context.newPage();
    faults = faultsOf(page);
    await signIn(page, stand.url, stand.token);
    await page.locator('[data-link="live"]').waitFor();
  });

  /** Goes where a link of the page leads, without loading it again. */
  const goTo = (path: string) => goWithin(page, `/console${path}`);
  const status = (state: string) => page.locator(`.headline [data-state="${state}"]`);

  test("the token is in no storage that scripts can read, and in no address", async () => {
    const seen = await storedText(page);
    assert.ok(!seen.includes("hft_") && !seen.includes(stand.token));
    const [cookie, ...others] = await context.cookies(stand.url);
    assert.deepEqual([cookie?.httpOnly, cookie?.sameSite, others.length], [true, "Strict", 0]);
    assert.ok(!(cookie?.value ?? "").includes(stand.token));
    assert.ok(!page.url().includes(stand.token));
    await page.reload();
    await page.locator('[data-link="live"]').waitFor();
  });

  test("the example job is followed live, from the list to its artifact", async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "hf-console-"));
    t.after(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
    await prepareRepositories(directory);
    const example = await exampleJob({ repositories: directory, stepMs: 50 });
    await page.getByRole("link", { name: "Jobs", exact: true }).click();
    await page.getByText("There are no jobs yet.").waitFor();
    const job = await stand.client.submitJob(example as unknown as JobSubmission);
    await page.getByRole("link", { name: /^engine-module/ }).click();
    await page.getByRole("heading", { name: "engine-module", level: 1 }).waitFor();
    await page.locator(".log-text", { hasText: "fetching engine at main" }).waitFor();
    await page.locator(".chart .released").first().waitFor({ state: "attached" });
    await status("succeeded").waitFor({ timeout: 90_000 });
    await page.getByText("site.tar.gz", { exact: true }).waitFor();
    const [artifact] = await stand.client.listArtifacts(job.id);
    await page
      .getByText(artifact?.sha256 ?? "")
      .first()
      .waitFor();
    const [attempt] = await stand.client.listAttempts(job.id);
    for (const pin of Object.values(attempt?.pins ?? {})) await page.getByText(pin).first().waitFor();
    await page.getByText("complete", { exact: true }).waitFor();
    assert.equal(await page.locator(".chart li").count(), 3);
    assert.equal(await page.locator(".chart li .bar.released.succeeded").count(), 3);
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download", exact: true }).click(),
    ]);
    assert.equal(download.suggestedFilename(), "site.tar.gz");
    const bytes = await readFile(await download.path());
    assert.equal(createHash("sha256").update(bytes).digest("hex"), artifact?.sha256);
    await page.getByLabel("Search").fill("pinning");
    await page.getByText("1 of ").waitFor();
    assert.equal(await page.locator(".log mark").first().textContent(), "pinning");
  });

  test("a job is cancelled, with its reason", async () => {
    const job = await stand.client.submitJob(shellJob("endless", [{ run: "echo begun; sleep 600" }]));
    await goTo(`/jobs/${job.id}`);
    await page.getByText("begun", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Cancel job" }).click();
    await page.getByLabel("Reason (stands in the record)").fill("wrong branch");
    await page.getByRole("button", { name: "Cancel the job" }).click();
    await status("cancelled").waitFor({ timeout: 60_000 });
    assert.equal((await stand.client.getJob(job.id)).cancel_reason, "wrong branch");
    await page.getByText("wrong branch").first().waitFor();
    await goTo("/commands");
    await page.getByText("jobs.cancel").first().waitFor();
  });

  test("a message is sent to a session, what it needs is granted, and its reply appears", async () => {
    const agent = (await notesAgent()) as unknown as AgentSubmission;
    await stand.client.createAgent(agent);
    const session = await stand.client.createSession({ agent: agent.metadata.name });
    await goTo(`/sessions/${session.id}`);
    await page.getByText("Nothing was said yet.").waitFor();
    await page.getByLabel("Message").fill("add buy milk");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("button", { name: "Grant notes.write" }).click({ timeout: 60_000 });
    await page.getByRole("button", { name: "Grant it" }).click();
    await page.getByText("Kept as note 1.").waitFor({ timeout: 60_000 });
    await page.getByText("notes.added").first().waitFor();
    await page.getByText("head", { exact: true }).waitFor();
    assert.equal((await stand.client.listActivations(session.id).page()).items.length, 1);
    await goTo("/deliveries");
    await page.getByRole("link", { name: /^inbox/ }).click();
    await page.getByText('"Kept as note 1."').waitFor();
  });

  test("an item of Work is suspended, released and cancelled", async () => {
    const work = await stand.work();
    const version = chargeWork("http://127.0.0.1:9");
    const worker = await createWorker(work, { works: [version], concurrency: 1 });
    await worker.stop();
    const { id } = await submit(
      work,
      version,
      { invoice: "2026-001", cents: 100 },
      { key: "invoice-2026-001" },
    );
    await goTo("/work");
    await page.getByRole("link", { name: /^charge-invoice/ }).click();
    await status("pending").waitFor();
    assert.equal(
      await page.locator("section", { hasText: "planned and happened" }).locator("tbody tr").count(),
      7,
    );
    const act = async (name: string, confirm: string) => {
      await page.getByRole("button", { name, exact: true }).click();
      await page.getByRole("button", { name: confirm }).click();
    };
    await act("Suspend", "Suspend it");
    await status("suspended").waitFor();
    await act("Release", "Release it");
    await status("pending").waitFor();
    await act("Cancel", "Cancel it");
    await status("cancelled_before_effect").waitFor();
    await page.getByText("Show what was submitted").click();
    await page.getByText('"2026-001"').waitFor();
    assert.equal((await stand.client.getWork(id)).cancel?.reason !== undefined, true);
  });

  test("the overview counts what is there, and follows it", async () => {
    await goTo("");
    const figure = (name: string) => page.locator(".figure", { hasText: name }).locator(".figure-value");
    await figure("Running jobs").waitFor();
    const job = await stand.client.submitJob(shellJob("counted", [{ run: "sleep 600" }]));
    await until("it is counted", async () => (await figure("Running jobs").textContent()) === "1");
    await stand.client.cancelJob(job.id);
    await until("it is counted no more", async () => (await figure("Running jobs").textContent()) === "0");
    await goTo("/system");
    await page.getByText(stand.stack.installation).waitFor();
  });

  test("nothing broke the page's policy, threw, or logged an error", () => {
    assert.deepEqual(faults, []);
  });
});
