import assert from "node:assert/strict";
import { before, test } from "node:test";
import type { Page } from "playwright-core";
import { browserTests, faultsOf, openBrowser, signIn } from "../support/browser.ts";
import { type ConsoleStand, consoleStand } from "../support/console-stand.ts";
import { type ForwardProxy, openForwardProxy } from "../support/forward-proxy.ts";
import { shellJob } from "../support/stack.ts";

browserTests("a connection that is lost", (scope) => {
  let stand: ConsoleStand;
  let proxy: ForwardProxy;
  let page: Page;
  let faults: string[] = [];

  before(async () => {
    stand = await consoleStand(scope);
    proxy = await openForwardProxy(scope);
    const context = await openBrowser(scope, { proxy: proxy.address });
    page = await context.newPage();
    faults = faultsOf(page);
    await signIn(page, stand.url, stand.token, "/jobs");
    await page.locator('[data-link="live"]').waitFor();
  });

  /** Waits on a queue that does not exist here, so it stays as it is. */
  const submit = (name: string) => stand.client.submitJob(shellJob(name, [{ run: "true" }]));
  const row = (name: string) => page.getByRole("link", { name: new RegExp(`^${name} `) });

  test("it says that it is disconnected, and catches up when it is back", async () => {
    await submit("before");
    await row("before").waitFor();
    proxy.cut();
    await page.locator('[data-link="disconnected"]').waitFor();
    await page.getByText("Not connected.").waitFor();
    await submit("meanwhile");
    assert.equal(await row("meanwhile").count(), 0);
    proxy.mend();
    await page.getByRole("button", { name: /^Try now/ }).click();
    await row("meanwhile").waitFor();
    await page.locator('[data-link="live"]').waitFor();
    assert.equal(await page.getByText("Not connected.").count(), 0);
  });

  test("S14: a cursor that is too old (410) has it read everything again", async () => {
    proxy.cut();
    await page.locator('[data-link="disconnected"]').waitFor();
    await submit("forgotten");
    await stand.stack.rows("update holdfast.change_counter set floor = position");
    proxy.mend();
    await page.getByRole("button", { name: /^Try now/ }).click();
    await row("forgotten").waitFor();
    await page.locator('[data-link="live"]').waitFor();
    await submit("afterwards");
    await row("afterwards").waitFor();
  });

  test("a token that was revoked leads to the sign-in, and back to the page", async () => {
    await stand.stack.rows("update holdfast.tokens set revoked_at = holdfast.ledger_now()");
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await page.getByText("Your token has expired or was revoked.").waitFor();
    await page.getByLabel("Token").fill(stand.token);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("Credentials are missing or not valid").waitFor();
    await page.getByLabel("Token").fill(await stand.anotherToken());
    await page.getByRole("button", { name: "Sign in" }).click();
    await row("afterwards").waitFor();
    assert.match(page.url(), /\/console\/jobs$/);
    await page.locator('[data-link="live"]').waitFor();
  });

  test("nothing broke the page's policy, threw, or logged an error", () => {
    assert.deepEqual(faults, []);
  });
});
