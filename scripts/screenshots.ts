/**
 * `npm run screenshots [PAGE …] [--dark] [--full]`: pictures of the console's pages at both widths, from a store of its
 * own in which a little has happened. All of them go to `.holdfast/screenshots`, to be looked at; those that
 * `docs/console.md` shows go to `docs/images` too.
 */
import { readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { BrowserContext, Page } from "playwright-core";
import { openBrowser, signIn, widths } from "../test/support/browser.ts";
import { consoleStand } from "../test/support/console-stand.ts";
import { furnish } from "./screenshots/furnish.ts";
import { shrink } from "./screenshots/shrink.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const looked = join(root, ".holdfast/screenshots");
const images = join(root, "docs/images");
const shownInDocs = readFileSync(join(root, "docs/console.md"), "utf8");
const bytesMax = 100_000;
/** To look at: all of a page, however long. */
const whole = process.argv.includes("--full");
const dark = process.argv.includes("--dark");
const wanted = process.argv.slice(2).filter((word) => !word.startsWith("--"));

const closers: (() => void | Promise<void>)[] = [];
const scope = { after: (hook: () => void | Promise<void>) => void closers.push(hook) };

try {
  const directory = await mkdtemp(join(tmpdir(), "hf-screenshots-"));
  scope.after(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  const stand = await consoleStand(scope);
  const shown = await furnish(stand, scope, directory);
  for (const folder of [looked, images]) await mkdir(folder, { recursive: true });
  const token = await stand.anotherToken("ada");
  for (const [name, viewport] of Object.entries(widths)) {
    const context = await openBrowser(scope, { viewport, dark });
    await takeAll(context, name, { url: stand.url, token }, shown);
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
  const picture = shrink(await page.screenshot({ animations: "disabled", fullPage: whole }));
  process.stdout.write(`${name}.png ${picture.length} bytes\n`);
  await writeFile(join(looked, `${name}.png`), picture);
  if (whole || dark || !shownInDocs.includes(`images/${name}.png`)) return;
  if (picture.length > bytesMax) throw new Error(`${name} is too large for the docs`);
  await writeFile(join(images, `${name}.png`), picture);
}
