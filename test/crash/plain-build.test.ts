import { crashAtEachPoint } from "../support/crash.ts";
import { plainBuild } from "../support/crash-scenarios.ts";

crashAtEachPoint("E3 E5 E6 E7 E10 S12: SIGKILL at each point of a build", plainBuild);
