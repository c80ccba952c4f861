import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { parse } from "yaml";
import { urlOf } from "../support/database-url.ts";
import { submission } from "../support/gateway.ts";
import { runCommand } from "../support/run-command.ts";
import { testStack } from "../support/stack.ts";

/** What an operator types on the database, and what the tokens are then good for at the gateway. */
describe("holdfast token and get commands", { concurrency: false }, () => {
  const hooks: (() => void | Promise<void>)[] = [];
  let url = "";
  let database = "";
  const type = (words: string, env: Readonly<Record<string, string>>) =>
    runCommand(words.split(" "), { env });
  const onStore = (words: string) => type(words, { HOLDFAST_DATABASE_URL: database });
  const withToken = (words: string, token: string) =>
    type(words, { HOLDFAST_URL: url, HOLDFAST_TOKEN: token });

  before(async () => {
    const stack = await testStack({ after: (hook) => void hooks.unshift(hook) });
    const { gateway } = await stack.gateway(await stack.foundation("gateway"));
    url = gateway.address;
    database = urlOf(stack.database.app);
  });
  after(async () => {
    for (const hook of hooks) await hook();
  });

  let token = "";
  let id = "";

  test("G1: create shows the token once, alone on standard output; list never shows it", async () => {
    const made = await onStore(
      "token create --tenant acme --principal ci --scope jobs:read jobs:write commands:read",
    );
    assert.equal(made.code, 0, made.stderr);
    token = made.stdout.trim();
    assert.match(token, /^hft_\S+$/);
    id = /^token (\S+) of ci in acme; it is not shown again:\n$/.exec(made.stderr)?.[1] ?? "";
    const listed = await onStore("token list --tenant acme -o yaml");
    const { items } = parse(listed.stdout) as {
      items: { id: string; principal: string; scopes: string[] }[];
    };
    const mine = items.find((one) => one.id === id);
    assert.deepEqual([mine?.principal, mine?.scopes], ["ci", ["jobs:read", "jobs:write", "commands:read"]]);
    const secret = token.slice(-20);
    for (const output of ["text", "json", "yaml"]) {
      assert.ok(!(await onStore(`token list --tenant acme -o ${output}`)).stdout.includes(secret));
    }
  });

  test("G2: the audit names who asked for what, newest first, as a table and for programs", async () => {
    assert.equal((await runJob(token)).code, 0);
    const table = await withToken("get commands --principal ci", token);
    assert.match(
      table.stdout,
      /^ID +WHO +OPERATION +TARGET +STATUS +AGE +REQUEST\n\S+ +ci +jobs\.submit +\/v1\/jobs\S* +201 /,
    );
    const json = await withToken("get commands --operation jobs.submit -o json", token);
    const { items } = JSON.parse(json.stdout) as { items: { principal: string; status: number }[] };
    assert.deepEqual(
      items.map(({ principal, status }) => [principal, status]),
      [["ci", 201]],
    );
    const none = await withToken("get commands --principal nobody", token);
    assert.deepEqual([none.code, none.stdout, none.stderr], [0, "", "no command fits\n"]);
  });

  test("G1: rotate makes a successor beside the old one; revoke lets neither wait", async () => {
    const rotated = await onStore(`token rotate ${id} --tenant acme --overlap 1h`);
    assert.equal(rotated.code, 0, rotated.stderr);
    const successor = rotated.stdout.trim();
    for (const one of [token, successor]) assert.equal((await withToken("get jobs", one)).code, 0);
    assert.equal((await onStore(`token revoke ${id} --tenant acme`)).stdout, `${id} is revoked\n`);
    const refused = await withToken("get jobs", token);
    assert.deepEqual([refused.code, /\(unauthenticated, request /.test(refused.stderr)], [4, true]);
    assert.equal((await withToken("get jobs", successor)).code, 0);
  });

  test("what can't be meant is refused with 2 and nothing is made", async () => {
    for (const words of [
      "token create --tenant acme --principal ci --scope jobs:fly",
      "token create --tenant ACME --principal ci --scope jobs:read",
      "token create --tenant acme --principal ci --scope jobs:read --lifetime soon",
      "token rotate nonsense --tenant acme",
      "token revoke 1 --tenant acme",
    ]) {
      const { code, stdout, stderr } = await onStore(words);
      assert.deepEqual([code, stdout], [2, ""], `${words}: ${stderr}`);
    }
    assert.equal((await onStore("token revoke 01976b2c-0000-7000-8000-000000000000 --tenant acme")).code, 3);
  });

  async function runJob(by: string) {
    return runCommand(["run", "-", "--detach"], {
      env: { HOLDFAST_URL: url, HOLDFAST_TOKEN: by },
      input: JSON.stringify(submission()),
    });
  }
});
