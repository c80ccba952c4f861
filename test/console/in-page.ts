import type { Page } from "playwright-core";

/**
 * What is used of a browser's globals, where these functions run. Tests are checked beside the server, for which there is
 * no such thing: its types alone would be another program of all that the server is.
 */
interface Element {
  readonly tagName: string;
  readonly className: string;
  readonly textContent: string | null;
  getBoundingClientRect(): { readonly right: number };
}
declare const document: {
  readonly documentElement: { readonly clientWidth: number; readonly scrollWidth: number };
  readonly body: { readonly scrollHeight: number };
  readonly activeElement: Element | null;
  readonly cookie: string;
  querySelectorAll(selector: string): Iterable<Element>;
};
declare const history: { pushState(state: null, unused: string, url: string): void };
declare const localStorage: object;
declare const sessionStorage: object;
declare class PopStateEvent extends Event {}
declare const dispatchEvent: (event: Event) => boolean;
declare const scrollTo: (x: number, y: number) => void;
declare const requestAnimationFrame: (callback: () => void) => void;

/** The text of what has the focus. */
export const focusedText = (page: Page): Promise<string> =>
  page.evaluate(() => document.activeElement?.textContent?.trim() ?? "");

/** As a link inside the page goes, without loading it anew. */
export const goWithin = (page: Page, path: string): Promise<void> =>
  page.evaluate((url) => {
    history.pushState(null, "", url);
    dispatchEvent(new PopStateEvent("popstate"));
  }, path);

/** All that scripts of the page can read of what is kept. */
export const storedText = (page: Page): Promise<string> =>
  page.evaluate(() =>
    JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage), document.cookie]),
  );

export const scrollToEnd = (page: Page): Promise<void> =>
  page.evaluate(() => scrollTo(0, document.body.scrollHeight));

/** By as many steps of a third of a screen, each in a frame of its own. */
export const scrollBySteps = (page: Page, steps: number): Promise<void> =>
  page.evaluate(async (count) => {
    for (let n = 0; n < count; n += 1) {
      scrollTo(0, 100_000 + 300 * n);
      await new Promise<void>((drawn) => requestAnimationFrame(drawn));
    }
  }, steps);

/** What makes a page scroll sideways, as `tag.class`; nothing when it doesn't. */
export function tooWide(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll("main *, header *, nav *")]
      .filter((element) => element.getBoundingClientRect().right > width + 1)
      .map((element) => `${element.tagName.toLowerCase()}.${element.className}`)
      .slice(0, 10);
  });
}

/** Milliseconds that the page's main thread was at work meanwhile, whatever else the machine did. */
export async function processorTime(page: Page, work: () => Promise<void>): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const read = async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    return (metrics.find(({ name }) => name === "ThreadTime")?.value ?? 0) * 1_000;
  };
  const before = await read();
  await work();
  const after = await read();
  await session.detach();
  return after - before;
}
