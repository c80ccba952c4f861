import { openOpenSandboxArena } from "../support/opensandbox/arena.ts";
import {
  afterItsCancellation,
  afterItsEnd,
  suspendedAtEachMoment,
  whileItRuns,
  type Zombie,
  zombies,
} from "../support/zombies.ts";

// What the guard says to a late request is tested with the facts; here, that nothing comes of it.
const requests: readonly Zombie[] = [
  // The other has claimed it, at a higher epoch.
  { at: "api claim received", ...whileItRuns, answered: 200, refused: null },
  // The other has raised the epoch, which the guard checks where the sandbox is.
  { at: "api release received", ...whileItRuns, answered: 200, refused: null },
  { at: "api release received", ...afterItsCancellation, answered: 404, refused: null },
  // It was released before; the other has started it, and a second start is none.
  { at: "api run received", ...whileItRuns, answered: 200, refused: null },
  { at: "api stop received", ...afterItsEnd, cancelled: true, answered: 404, refused: null },
  { at: "api delete received", ...afterItsEnd, answered: 404, refused: null },
];

suspendedAtEachMoment(
  "E5 E6 E7 G5 E21: a controller of OpenSandbox, SIGSTOP past the lease, then resumed; what it sent is refused by the guard",
  [
    ...zombies.filter(({ at }) => at === "call runtime.prepare" || at === "call runtime.release"),
    ...requests,
  ],
  openOpenSandboxArena,
);
