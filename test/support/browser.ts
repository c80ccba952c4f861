import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe } from "node:test";
import { type BrowserContext, chromium, type Page } from "playwright-core";

/** Debian's own; nothing is downloaded. */
const places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
export const chromiumPath: string | null = places.find((path) => existsSync(path)) ?? null;

const flags = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** As wide as a desk, and as a phone. */
export const widths = { wide: { width: 1440, height: 900 }, narrow: { width: 375, height: 812 } } as const;

/** A browser that knows nothing from before. It ends with the scope. */
export async function openBrowser(
  scope: BrowserScope,
  options: {
    readonly viewport?: { readonly width: number; readonly height: number };
    readonly dark?: boolean;
    /** What stands between it and every server. */
    readonly proxy?: string;
  } = {},
): Promise<BrowserContext> {
  if (chromiumPath === null) throw new Error("there is no Chromium on this machine");
  const profile = await mkdtemp(join(tmpdir(), "hf-browser-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: chromiumPath,
    headless: true,
    args: flags,
    viewport: options.viewport ?? widths.wide,
    colorScheme: options.dark === true ? "dark" : "light",
    locale: "en-GB",
    timezoneId: "UTC",
    reducedMotion: "reduce",
    ...(options.proxy === undefined ? {} : { proxy: { server: options.proxy, bypass: "<-loopback>" } }),
  });
  context.setDefaultTimeout(20_000);
  scope.after(async () => {
    await context.close();
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  });
  return context;
}

/** What a page must never do: break its own policy, throw, or log an error. */
export function faultsOf(page: Page): string[] {
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(`threw ${error.message}`));
  page.on("console", (message) => {
    // A refused request is what some tests are about; the page shows it.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) {
      faults.push(`logged ${message.text()}`);
    }
  });
  return faults;
}

/** Opens the console and signs in. */
export async function signIn(page: Page, url: string, token: string, path = ""): Promise<void> {
  await page.goto(`${url}/console${path}`);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator("#nav").waitFor({ state: "attached" });
}

export interface BrowserScope {
  readonly after: (hook: () => void | Promise<void>) => void;
}

/** Tests that need a browser, and what ends with all of them. Without one the file says so, in one line. */
export function browserTests(name: string, tests: (scope: BrowserScope) => void): void {
  const skip = chromiumPath === null ? `no Chromium here (${places.join(", ")})` : false;
  describe(`console in a browser: ${name}`, { skip, concurrency: false }, () => {
    const closers: (() => void | Promise<void>)[] = [];
    // What was opened last is closed first.
    after(async () => {
      for (const closer of closers.toReversed()) await closer();
    });
    tests({ after: (hook) => void closers.push(hook) });
  });
}
