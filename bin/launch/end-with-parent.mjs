// Preloaded into what the launcher starts. The channel to the launcher closes when the launcher dies, also by
// SIGKILL; then this process is asked to stop, as by the launcher itself, and made to after a while.
const graceMs = 15_000;

if (process.env.HOLDFAST_LAUNCHER === String(process.ppid) && process.channel !== undefined) {
  process.once("disconnect", () => {
    setTimeout(() => process.kill(process.pid, "SIGKILL"), graceMs).unref();
    process.kill(process.pid, "SIGTERM");
  });
  // The channel itself keeps nothing running.
  process.channel.unref();
}
