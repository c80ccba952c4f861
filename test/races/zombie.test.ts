import { suspendedAtEachMoment, zombies } from "../support/zombies.ts";

suspendedAtEachMoment("E5 E6 E7: SIGSTOP past the lease, then resumed", zombies);
