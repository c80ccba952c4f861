// An agent that keeps notes. It needs no model: what it is for is to show the protocol, with all of its parts.
// It runs in the session's folder, which it finds as the last committed turn left it.
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { setTimeout as pause } from "node:timers/promises";

const folder = "notes";
const permission = "notes.write";
/** Stretches each step, for whoever wants to watch, or to pull the plug in the middle. */
const stepMs = Number(process.env.NOTES_STEP_MS ?? 0);

const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

async function step(name, data = {}) {
  say({ type: "event", name, data });
  await pause(stepMs);
}

function end(reply, required_action = null) {
  say({ type: "outcome", reply: reply === null ? null : { text: reply }, required_action });
}

/** `1.txt`, `2.txt` …: numbers that were used are not used again while later notes are there. */
async function numbers() {
  const names = await readdir(folder).catch(() => []);
  return names.map((name) => Number.parseInt(name, 10)).sort((a, b) => a - b);
}

const noteOf = async (number) => `${number}. ${await readFile(`${folder}/${number}.txt`, "utf8")}`;

async function notes(fits = () => true) {
  const all = await Promise.all((await numbers()).map(noteOf));
  return all.filter(fits);
}

const commands = {
  async add(words) {
    if (words === "") return "Add what? For example: add buy milk";
    const number = ((await numbers()).at(-1) ?? 0) + 1;
    await step("notes.adding", { number });
    await mkdir(folder, { recursive: true });
    await writeFile(`${folder}/${number}.txt`, words);
    await step("notes.added", { number });
    return `Kept as note ${number}.`;
  },
  async list() {
    const all = await notes();
    return all.length === 0 ? "There are no notes yet." : all.join("\n");
  },
  async find(words) {
    const found = await notes((note) => note.toLowerCase().includes(words.toLowerCase()));
    return found.length === 0 ? `No note has “${words}”.` : found.join("\n");
  },
  async remove(words) {
    if (!(await numbers()).includes(Number(words))) return `There is no note ${words}.`;
    await step("notes.removing", { number: Number(words) });
    await rm(`${folder}/${Number(words)}.txt`);
    return `Note ${words} is gone.`;
  },
  async help() {
    return "I keep notes: add WORDS, list, find WORDS, remove NUMBER.";
  },
};
const writing = new Set(["add", "remove"]);

const input = JSON.parse(await text(process.stdin));
say({ type: "start", protocol: 1 });

const [, word = "", words = ""] = /^\s*(\S*)\s*([\s\S]*?)\s*$/.exec(String(input.stimulus.text ?? "")) ?? [];
const name = Object.hasOwn(commands, word.toLowerCase()) ? word.toLowerCase() : "help";
await step("notes.understood", { command: name });

if (writing.has(name) && !input.permissions.includes(permission)) {
  // Nothing of this run is kept. When somebody grants it, the same turn runs again, and for good.
  end(null, { type: "grant_permission", permission, reason: "I would write to your notes." });
} else {
  end(await commands[name](words));
}
