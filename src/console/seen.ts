import { signal } from "@preact/signals";

const pauseMs = 20_000;

/**
 * Whether somebody looks at this tab, or did a moment ago. A browser opens few connections to one server, for all
 * tabs together: hidden ones leave theirs to the others.
 */
export const seen = signal(true);

export function startSeeing(): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const look = () => {
    clearTimeout(timer);
    if (!document.hidden) seen.value = true;
    else timer = setTimeout(() => (seen.value = false), pauseMs);
  };
  document.addEventListener("visibilitychange", look);
  look();
}

export function untilSeen(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    let stop = () => {};
    const look = () => {
      if (!seen.peek() && !signal.aborted) return;
      signal.removeEventListener("abort", look);
      resolve();
      // Called at once too, before there is anything to stop.
      queueMicrotask(() => stop());
    };
    signal.addEventListener("abort", look);
    stop = seen.subscribe(look);
  });
}
