import { turnsSuspendedAtEachMoment, turnZombies } from "../support/turn-zombies.ts";

turnsSuspendedAtEachMoment(
  "E6 S4 S7: a turn's controller, SIGSTOP past the lease, then resumed",
  turnZombies,
);
