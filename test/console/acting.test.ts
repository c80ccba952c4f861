import assert from "node:assert/strict";
import { before, test } from "node:test";
import type { BrowserContext, Page } from "playwright-core";
import { brandId, type IncarnationId, uuidv7 } from "../../src/core/ids.ts";
import { seconds } from "../../src/core/time.ts";
import { openedWork } from "../../src/work/opened.ts";
import { defineWork, legacy, submit } from "../../src/work/sdk.ts";
import { claimWork, recoverWork, turnWork } from "../../src/work/turn.store.ts";
import { registerVersion } from "../../src/work/version.store.ts";
import { browserTests, faultsOf, openBrowser, signIn } from "../support/browser.ts";
import { type ConsoleStand, consoleStand } from "../support/console-stand.ts";
import { hastyTries, loopbackEgress } from "../support/publisher.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { sessionsOf } from "../support/sessions.ts";
import { until } from "../support/until.ts";

browserTests("acting on what went wrong", (scope) => {
  let stand: ConsoleStand;
  let context: BrowserContext;
  let receiver: Receiver;
  let page: Page;
  /** Nobody clicks here: what it shows came by the stream. */
  let watching: Page;
  let faults: readonly string[][] = [];

  before(async () => {
    receiver = await openReceiver({ after: (hook) => scope.after(hook) });
    stand = await consoleStand(scope, {
      deliveries: {
        egress: loopbackEgress(),
        keys: () => Promise.resolve([]),
        settling: { policy: hastyTries },
      },
    });
    context = await openBrowser(scope);
    [page, watching] = [await context.newPage(), await context.newPage()];
    faults = [faultsOf(page), faultsOf(watching)];
    await signIn(page, stand.url, stand.token);
  });

  /** On both pages, once both hear of changes. */
  const open = async (path: string) => {
    for (const one of [page, watching]) {
      await one.goto(`${stand.url}/console${path}`);
      await one.locator('[data-link="live"]').waitFor();
    }
  };
  const headline = (where: Page, state: string) => where.locator(`.headline [data-state="${state}"]`);

  test("S8: a dead letter is delivered again by a click, under the same id", async () => {
    receiver.answer((_heard, response) => void response.writeHead(410).end());
    const sessions = sessionsOf(stand.db, stand.stack.tenant);
    await sessions.agent("notes", { destinations: [{ name: "hook", url: `${receiver.url}/hook` }] });
    await sessions.tell(await sessions.create("notes"), { text: "one" });
    const dead = async () => (await stand.client.listDeliveries({ state: "dead" }).page()).items[0];
    await until("it is dead", async () => (await dead()) !== undefined, 60_000);
    const id = (await dead())?.id ?? "";
    await open("/deliveries?state=dead");
    await page.getByRole("link", { name: /^hook/ }).click();
    await headline(page, "dead").waitFor();
    await page.getByText("410").first().waitFor();
    receiver.answer((_heard, response) => void response.writeHead(204).end());
    await page.getByRole("button", { name: "Deliver again" }).click();
    await page.getByRole("button", { name: "Deliver it" }).click();
    await headline(page, "delivered").waitFor();
    await watching.getByText("No delivery is dead.").waitFor();
    assert.deepEqual(
      receiver.heard.map((heard) => heard.id),
      [id, id],
    );
  });

  test("W11: what nobody knows is resolved with a proof, and whoever watches sees it", async () => {
    const work = openedWork(await stand.work());
    const version = defineWork<unknown, null>({
      name: "pay",
      version: "1",
      safety: "manual_resolution",
      policy: legacy(),
      run: () => null,
    });
    const number = await registerVersion(work.db, version);
    const { id } = await submit(work, version, { cents: 5 });
    await lose(`${number}.default`);
    await open(`/work/${id}`);
    await headline(watching, "suspended").waitFor();
    await watching.locator(".headline .tag.need").waitFor();
    await page.getByText("Nobody knows whether an attempt had its effect").waitFor();
    await page.getByRole("button", { name: "It was applied" }).click();
    await page.getByLabel("How you know it").fill("it is in the bank's list");
    await page.getByRole("button", { name: "Record the proof" }).click();
    for (const one of [watching, page]) await headline(one, "succeeded").waitFor();
    assert.equal(await watching.locator(".headline .tag.need").count(), 0);
    const { outcome_unknown, attempt_log } = await stand.client.getWork(id);
    assert.deepEqual([outcome_unknown, attempt_log[0]?.proof?.note], [false, "it is in the bank's list"]);

    /** A worker begins, and is never heard of again. */
    async function lose(lane: string): Promise<void> {
      const claim = {
        holder: brandId<IncarnationId>(uuidv7()),
        lanes: [lane],
        limit: 1,
        leaseUs: seconds(30),
      };
      const { claimed } = await claimWork(work.db, claim);
      assert.equal((await turnWork(work.db, claim.holder, [], claimed)).permitted.length, 1);
      await stand.stack.rows("update holdfast.leases_work set wake_at = clock_timestamp()");
      await recoverWork(work.db, claimed);
    }
  });

  test("nothing broke the page's policy, threw, or logged an error", () => {
    assert.deepEqual(faults, [[], []]);
  });
});
