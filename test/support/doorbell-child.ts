/** A process of its own that rings when it is told to, and tells what it hears. */
import { openDoorbell } from "../../src/core/postgres/doorbell.ts";
import type { ConnectionSettings } from "../../src/core/postgres/pool.ts";

const settings = JSON.parse(process.argv[2] ?? "") as ConnectionSettings;
const doorbell = openDoorbell({ settings, name: "child", onError: () => undefined });
doorbell.onRing(() => process.send?.("heard"));
process.on("message", () => doorbell.ring());
process.on("disconnect", () => process.exit());
