/** How much a worker takes at a time, from what it measures of itself. */
export interface Pacing {
  /** Claim more when fewer are left than this. */
  lowWater(): number;
  claimSize(max: number): number;
  claimed(taken: number, asked: number): void;
  turned(ms: number): void;
  served(ms: number): void;
  /** How many permits may wait for a handler: what the handlers will have done by the next turn or two. */
  ahead(): number;
}

const aheadMax = 900;
/** Each new measure counts for a fifth. */
const weight = 0.2;
/** No more is claimed than is likely to be run in this time: what one worker has, another one can't take. */
const claimedForMs = 250;

export function pacing(concurrency: number): Pacing {
  let size = Math.max(2, 2 * concurrency);
  let turnMs = 2;
  /** A guess, until something has run. */
  let serviceMs = 50;
  let guessed = true;
  const perMs = () => concurrency / Math.max(serviceMs, 0.002);
  return {
    lowWater: () => Math.ceil(size / 2),
    claimSize: (max) => Math.min(size, max),
    claimed(taken, asked) {
      const likely = Math.ceil(perMs() * claimedForMs);
      if (taken >= asked)
        size = Math.min(Math.max(size * 2, 2 * concurrency), Math.max(likely, 2 * concurrency), 500);
    },
    turned(ms) {
      turnMs += weight * (ms - turnMs);
    },
    served(ms) {
      serviceMs += (guessed ? 1 : weight) * (ms - serviceMs);
      guessed = false;
    },
    ahead: () => Math.min(aheadMax, Math.floor(perMs() * turnMs * 1.5)),
  };
}
