import { useEffect } from "preact/hooks";

/** For what no change tells of. Nothing is asked while nobody looks. */
export function useEvery(milliseconds: number, work: () => void): void {
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) work();
    }, milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds, work]);
}
