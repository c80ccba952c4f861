/**
 * `npm run screenshots [PAGE …]`: pictures of the console's pages for the documentation, at both widths, from a
 * store of its own in which a little has happened.
 */
import { mkdir, mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { BrowserContext, Page } from "playwright-core";
import { openBrowser, signIn, widths } from "../test/support/browser.ts";
import { consoleStand } from "../test/support/console-stand.ts";
import { furnish } from "./screenshots/furnish.ts";

const images = process.env["HOLDFAST_IMAGES"] ?? fileURLToPath(new URL("../docs/images", import.meta.url));
const bytesMax = 100_000;
const dark = process.argv.includes("--dark");
const wanted = process.argv.slice(2).filter((word) => !word.startsWith("--"));

const closers: (() => void | Promise<void>)[] = [];
const scope = { after: (hook: () => void | Promise<void>) => void closers.push(hook) };

try {
  const directory = await mkdtemp(join(tmpdir(), "hf-screenshots-"));
  scope.after(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  const stand = await consoleStand(scope);
  const shown = await furnish(stand, scope, directory);
  await mkdir(images, { recursive: true });
  for (const [name, viewport] of Object.entries(widths)) {
    const context = await openBrowser(scope, { viewport, dark });
    await takeAll(context, name, stand, shown);
  }
} finally {
  for (const closer of closers.toReversed()) await closer();
}

async function takeAll(
  context: BrowserContext,
  width: string,
  { url, token }: { readonly url: string; readonly token: string },
  shown: Readonly<Record<string, string>>,
): Promise<void> {
  const [page = await context.newPage()] = context.pages();
  if (wanted.length === 0 || wanted.includes("sign-in")) {
    await page.goto(`${url}/console`);
    await page.getByLabel("Token").waitFor();
    await take(page, `sign-in-${width}`);
  }
  await signIn(page, url, token);
  for (const [name, path] of Object.entries(shown)) {
    if (wanted.length > 0 && !wanted.includes(name)) continue;
    await page.goto(`${url}/console${path}`);
    await page.locator('[data-link="live"]').waitFor({ state: "attached" });
    await page.locator("main h1").waitFor();
    await page.getByText("Reading …").waitFor({ state: "detached" });
    await take(page, `${name}-${width}`);
  }
}

async function take(page: Page, name: string): Promise<void> {
  const path = join(images, `${name}.png`);
  await page.screenshot({ path, animations: "disabled", fullPage: process.argv.includes("--full") });
  const { size } = await stat(path);
  process.stdout.write(`${path} ${size} bytes\n`);
  if (size > bytesMax && !process.argv.includes("--full"))
    throw new Error(`${name} is too large for the docs`);
}
