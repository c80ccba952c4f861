/** A process that runs what comes and says when, on the machine's monotonic clock: `node pick-up.ts '{…}'`. */
import type { ConnectionSettings } from "../../src/core/postgres/pool.ts";
import { engineOf } from "./engines.ts";

const { name, file, database, url } = JSON.parse(process.argv[2] ?? "") as {
  readonly name: string;
  readonly file: string;
  readonly database: ConnectionSettings;
  readonly url: string;
}; // written by run.ts
const engine = await engineOf(name, file)(database, url);
const stop = await engine.run(10, {
  enter: () => process.send?.(String(process.hrtime.bigint())),
  leave: () => undefined,
});
process.send?.("ready");
process.once("message", () => {
  void stop()
    .then(() => engine.close())
    .finally(() => process.exit(0));
});
