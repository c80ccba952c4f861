import assert from "node:assert/strict";
import { before, test } from "node:test";
import type { BrowserContext, Page } from "playwright-core";
import { browserTests, faultsOf, openBrowser, signIn, widths } from "../support/browser.ts";
import { type ConsoleStand, consoleStand } from "../support/console-stand.ts";
import { shellJob } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { focusedText, processorTime, scrollBySteps, scrollToEnd, tooWide } from "./in-page.ts";

const markup = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`;
const tricks = `${markup}\u202ereversed javascript:alert(1)`;
const hostile = {
  ...shellJob("hostile", [
    {
      run: `printf '%s\\n' "$EVIL"; printf '\\033[31mred\\033[0m \\033[2J\\033]0;title\\007end\\n'; sleep 600`,
    },
  ]),
};

browserTests("what it shows", (scope) => {
  let stand: ConsoleStand;
  let context: BrowserContext;
  let page: Page;
  let faults: string[] = [];
  let job = "";

  before(async () => {
    stand = await consoleStand(scope);
    context = await openBrowser(scope);
    page = await context.newPage();
    faults = faultsOf(page);
    const { spec, ...rest } = hostile;
    const [phase] = spec.phases;
    assert.ok(phase !== undefined);
    const submitted = await stand.client.submitJob({
      ...rest,
      metadata: { name: "hostile", labels: { note: tricks } },
      spec: { ...spec, phases: [{ ...phase, env: { EVIL: tricks } }] },
    });
    job = submitted.id;
  });

  test("markup and control characters in labels, output and reasons are text", async () => {
    await signIn(page, stand.url, stand.token, `/jobs/${job}`);
    await page.locator(".labels li", { hasText: "<script>" }).waitFor();
    await page.locator(".log-text", { hasText: "<img src=x" }).waitFor();
    await page.locator(".log-text .c1", { hasText: "red" }).waitFor();
    await page.locator(".log-text", { hasText: /^red \u241b\[2J\u241b\]0;title\u2407end$/ }).waitFor();
    await stand.client.cancelJob(job, { reason: tricks });
    await page.locator("dd", { hasText: "<script>" }).last().waitFor();
    assert.equal(await page.locator("main img, main script").count(), 0);
    assert.match((await page.locator(".labels").first().textContent()) ?? "", /\\u202ereversed/);
    assert.match(await page.title(), /^hostile · Holdfast$/);
  });

  test("it works by keyboard alone", async () => {
    const other = await context.newPage();
    const press = async (key: string, times = 1) => {
      for (let n = 0; n < times; n += 1) await other.keyboard.press(key);
    };
    const focused = () => focusedText(other);
    const tabTo = async (text: RegExp) => {
      for (let n = 0; n < 60; n += 1) {
        await press("Tab");
        if (text.test(await focused())) return;
      }
      assert.fail(`Tab does not come to ${text}`);
    };
    const kept = await stand.client.submitJob(shellJob("typed", [{ run: "sleep 600" }]));
    await other.goto(`${stand.url}/console`);
    await other.getByRole("heading", { name: "Overview" }).waitFor();
    await press("Tab");
    assert.equal(await focused(), "Skip to the content");
    await press("Enter");
    assert.equal(await focused(), "Overview");
    await other.reload();
    await tabTo(/^Jobs$/);
    await press("Enter");
    await until("the heading has the focus", async () => (await focused()) === "Jobs");
    await tabTo(/^typed/);
    await press("Enter");
    await until("the heading has the focus", async () => (await focused()) === "typed");
    await tabTo(/^Cancel job$/);
    await press("Enter");
    await other.getByRole("dialog").waitFor();
    await press("Escape");
    await until("the button has the focus again", async () => (await focused()) === "Cancel job");
    await press("Enter");
    await other.getByLabel("Reason (stands in the record)").focus();
    await other.keyboard.type("by keyboard");
    await press("Enter");
    await until(
      "it is cancelled",
      async () => (await stand.client.getJob(kept.id)).cancel_reason === "by keyboard",
    );
    await other.close();
  });

  for (const [name, viewport] of Object.entries(widths)) {
    test(`no page is wider than a ${name} screen`, async () => {
      const other = await context.newPage();
      await other.setViewportSize(viewport);
      const paths = [
        "",
        "/jobs",
        `/jobs/${job}`,
        "/sessions",
        "/work",
        "/deliveries",
        "/commands",
        "/changes",
        "/system",
      ];
      for (const path of [...paths, "/nowhere"]) {
        await other.goto(`${stand.url}/console${path}`);
        await other.locator("main h1").waitFor();
        await other.getByText("Reading …").waitFor({ state: "detached" });
        assert.deepEqual(await tooWide(other), [], `${path} at ${viewport.width}`);
      }
      if (name === "narrow") {
        await other.getByRole("button", { name: "Menu" }).click();
        await other.getByRole("link", { name: "Sessions" }).click();
        await other.getByRole("heading", { name: "Sessions" }).waitFor();
        assert.equal(await other.getByRole("link", { name: "Commands" }).isVisible(), false);
      }
      await other.close();
    });
  }

  test("ten thousand rows and a hundred thousand lines stay few on the page", async (t) => {
    await stand.stack.rows(
      `insert into holdfast.jobs (tenant_id, job_id, name, spec_digest, state, created_at, finished_at, cancel_requested_at, cancel_reason)
       select tenant_id, gen_random_uuid(), 'many', spec_digest, 'cancelled', created_at - n * interval '1 second', created_at, created_at, 'made'
       from holdfast.jobs, generate_series(1, 10000) n where job_id = $1`,
      [job],
    );
    await page.goto(`${stand.url}/console/jobs`);
    await page.getByText("100 jobs and more").waitFor();
    // To the end, page after page, as fast as they come.
    await until(
      "the last row is there",
      async () => {
        await scrollToEnd(page);
        return page.getByText(/^10,00\d jobs$/).isVisible();
      },
      90_000,
    );
    assert.ok((await page.locator(".rows tbody tr").count()) < 120);
    const steps = 60;
    const milliseconds = await processorTime(page, () => scrollBySteps(page, steps));
    t.diagnostic(`a third of a screen of 10,000 rows takes ${(milliseconds / steps).toFixed(1)} ms`);
    // Of the processor, so that what else a machine does counts little. A frame is 17 ms where nothing else runs.
    assert.ok(milliseconds / steps < 50, `a step took ${milliseconds / steps} ms`);

    const loud = await stand.client.submitJob(shellJob("loud", [{ run: "seq 1 100000" }]));
    await page.goto(`${stand.url}/console/jobs/${loud.id}`);
    await page.getByText("100,000 lines").waitFor({ timeout: 60_000 });
    assert.ok((await page.locator(".log-line").count()) < 150);
    await page.locator(".log-text", { hasText: /^100000$/ }).waitFor();
    await page.getByLabel("Search").fill("9999");
    await page.getByText(/^\d+ of 100,000 lines$/).waitFor();
  });

  test("nothing broke the page's policy, threw, or logged an error", () => {
    assert.deepEqual(faults, []);
  });
});
