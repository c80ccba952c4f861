// Resolve both refs to commits, report these as pins, and hand the trees of exactly these commits on.
import { mkdir, writeFile } from "node:fs/promises";
import { holdfast, output, run, sources, step } from "./phase.mjs";

/** Git as the repository says, not as the machine is set up: no user's or system's configuration, no hooks, no questions. */
const env = {
  ...process.env,
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_TERMINAL_PROMPT: "0",
};
const git = (...words) => run("git", ["-c", "core.hooksPath=/dev/null", ...words], { env });
const ask = async (...words) => (await output("git", words, { env })).toString().trim();

const commits = new Map();
for (const [name, { repository, ref }] of Object.entries(sources)) {
  await step(`fetching ${name} at ${ref}`, commits.size * 20);
  await git("init", "--quiet", "--bare", "--template=", `${name}.git`);
  await git("--git-dir", `${name}.git`, "fetch", "--quiet", "--no-tags", "--depth=1", "--", repository, ref);
  const commit = await ask("--git-dir", `${name}.git`, "rev-parse", "--verify", "FETCH_HEAD^{commit}");
  console.log(`  ${name} ${ref} is ${commit}`);
  commits.set(name, commit);
}

await step("pinning the commits", 40);
await holdfast("pin", ...[...commits].map(([name, commit]) => `${name}=${commit}`));

let done = 0;
for (const [name, commit] of commits) {
  await step(`packing ${name} ${commit.slice(0, 10)}`, 50 + done * 25);
  const gitDirectory = ["--git-dir", `${name}.git`];
  await mkdir(`${name}/tree`, { recursive: true });
  await git(
    ...gitDirectory,
    "--work-tree",
    `${name}/tree`,
    "checkout",
    "--quiet",
    "--force",
    commit,
    "--",
    ".",
  );
  // The raw commit travels with its tree, so that the next phase can prove that the two belong together.
  await writeFile(
    `${name}/commit`,
    await output("git", [...gitDirectory, "cat-file", "commit", commit], { env }),
  );
  await holdfast("pack", name, `${name}.tar.gz`);
  await holdfast("upload", `${name}.tar.gz`, `${name}.tar.gz`, "--media-type", "application/gzip");
  done += 1;
}
