/** A process of its own that claims a lease, keeps it, and tells when it is lost. */
import { isHoldfastError } from "../../src/core/errors.ts";
import { registerIncarnation } from "../../src/core/incarnation.store.ts";
import { claimLeases } from "../../src/core/lease.store.ts";
import { startLeaseKeeper } from "../../src/core/postgres/lease-keeper.ts";
import { type ConnectionSettings, openPools } from "../../src/core/postgres/pool.ts";
import { microseconds } from "../../src/core/time.ts";

const settings = JSON.parse(process.argv[2] ?? "") as ConnectionSettings;
const leaseUs = microseconds(1_000_000n);
const db = { pools: openPools({ settings, name: "child" }), deploymentEpoch: 1n, committed: () => undefined };
const schema = { minimum: 12, maximum: 12 };
const holder = await registerIncarnation(db, { process: "child", release: "test", schema });
const keeper = startLeaseKeeper({
  settings,
  holder,
  leaseUs,
  renewMs: 250,
  stallMs: 5_000,
  onError: () => undefined,
});
const [lease] = await claimLeases(db, { kind: "execution", holder, limit: 1, quota: 1, leaseUs });
if (lease === undefined) throw new Error("nothing was due");
const { signal } = keeper.hold(lease);
signal.addEventListener("abort", () =>
  process.send?.(isHoldfastError(signal.reason, "fenced") ? "fenced" : "aborted"),
);
process.send?.("held");
process.on("disconnect", () => process.exit());
