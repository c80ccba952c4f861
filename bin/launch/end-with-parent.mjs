// Preloaded into what the launcher starts. The channel to the launcher closes when the launcher dies, also by
// SIGKILL; then this process ends too: at once, or asked to stop as by the launcher itself and made to later.
const { HOLDFAST_LAUNCHER: launcher, HOLDFAST_LAUNCHER_GRACE_MS: graceMs } = process.env;

if (launcher === String(process.ppid) && process.channel !== undefined) {
  const kill = () => process.kill(process.pid, "SIGKILL");
  process.once("disconnect", () => {
    if (graceMs === "0") kill();
    setTimeout(kill, Number(graceMs)).unref();
    process.kill(process.pid, "SIGTERM");
  });
  // The channel itself keeps nothing running.
  process.channel.unref();
}
