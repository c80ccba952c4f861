import type {
  DisabledTenant,
  RetiredVersion,
  SuspensionReason,
  WorkBatch,
  WorkDetail,
  WorkPayload,
  WorkProof,
  WorkReceipt,
  WorkReceipts,
  WorkStateName,
  WorkSubmission,
  WorkVersionView,
  WorkView,
} from "../wire/work.ts";
import { type Pages, pages, type WatchedPage } from "./pages.ts";
import type { Conditional, Mutation, Resources } from "./resource.ts";
import type { CallOptions, Request, Transport } from "./transport.ts";

export interface WorkFilter extends CallOptions {
  readonly state?: WorkStateName | undefined;
  readonly name?: string | undefined;
  readonly version?: string | undefined;
  readonly queue?: string | undefined;
  /** Why it is suspended; those alone. */
  readonly reason?: SuspensionReason | undefined;
  /** Items of a page. */
  readonly limit?: number | undefined;
}

/** Newest first. A page may be short, or empty, and still not the last one. */
export type WorkList = Pages<WorkView, WatchedPage<WorkView>>;

export interface WorkCalls {
  /** Accepted once by its id, its key, and the Idempotency-Key: an identical request gives the item that is there. */
  submitWork(item: WorkSubmission, options?: Mutation): Promise<WorkReceipt>;
  /** All of it, or none. In the order of the items. */
  submitWorkBatch(batch: WorkBatch, options?: Mutation): Promise<readonly WorkReceipt[]>;
  listWork(filter?: WorkFilter): WorkList;
  /** Every stored fact but the payload. */
  getWork(id: string, options?: CallOptions): Promise<WorkDetail>;
  /** What was submitted, and what it gave: needs the scope `work:payload`. */
  getWorkPayload(id: string, options?: CallOptions): Promise<WorkPayload>;
  cancelWork(id: string, options?: Conditional & { readonly reason?: string | undefined }): Promise<WorkView>;
  /** Settle the most recent unknown outcome by what is known of it. */
  resolveWork(id: string, proof: WorkProof, options?: Conditional): Promise<WorkView>;
  /** Back to its own time. */
  releaseWork(id: string, options?: Conditional): Promise<WorkView>;
  /** Back, due at once where no plan says when. */
  requeueWork(id: string, options?: Conditional): Promise<WorkView>;
  /** Out of its line, until it is released or requeued. */
  suspendWork(id: string, options?: Conditional): Promise<WorkView>;
  listWorkVersions(options?: CallOptions & { readonly name?: string }): Promise<readonly WorkVersionView[]>;
  /** Nothing new is accepted under it; what is there drains. Only operators of the installation. */
  retireWorkVersion(name: string, version: string, options?: Mutation): Promise<RetiredVersion>;
  /** For good. `confirm` is its name once more. Only operators of the installation. */
  disableTenant(tenant: string, options: Mutation & { readonly confirm: string }): Promise<DisabledTenant>;
}

export function workCalls(transport: Transport, { one }: Resources): WorkCalls {
  const path = (id: string) => `/v1/work/${encodeURIComponent(id)}`;
  const change = (id: string, verb: string, body: object, options: Conditional = {}) =>
    one<WorkView>({ ...options, method: "POST", path: `${path(id)}:${verb}`, body });
  const post = async <T>(request: Request, { idempotencyKey, signal }: Mutation = {}): Promise<T> => {
    const headers = idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey };
    return (await transport.json<T>({ ...request, method: "POST", headers, signal })).value;
  };
  return {
    submitWork: (body, options) => post({ path: "/v1/work", body }, options),
    submitWorkBatch: async (body, options) =>
      (await post<WorkReceipts>({ path: "/v1/work:batch", body }, options)).items,
    listWork: ({ signal, ...query } = {}) => pages(transport, { path: "/v1/work", query, signal }),
    getWork: (id, options) => one({ ...options, path: path(id) }),
    getWorkPayload: async (id, { signal } = {}) =>
      (await transport.json<WorkPayload>({ path: `${path(id)}/payload`, signal })).value,
    cancelWork: (id, { reason, ...options } = {}) =>
      change(id, "cancel", reason === undefined ? {} : { reason }, options),
    resolveWork: (id, proof, options) => change(id, "resolve", proof, options),
    releaseWork: (id, options) => change(id, "release", {}, options),
    requeueWork: (id, options) => change(id, "requeue", {}, options),
    suspendWork: (id, options) => change(id, "suspend", {}, options),
    listWorkVersions: async ({ name, signal } = {}) => {
      const request = { path: "/v1/work-versions", query: { name }, signal };
      return (await transport.json<{ readonly items: readonly WorkVersionView[] }>(request)).value.items;
    },
    retireWorkVersion: (name, version, options) =>
      post(
        {
          path: `/v1/work-versions/${encodeURIComponent(name)}/${encodeURIComponent(version)}:retire`,
          body: {},
        },
        options,
      ),
    disableTenant: (tenant, { confirm, ...options }) =>
      post({ path: `/v1/tenants/${encodeURIComponent(tenant)}:disable`, body: { confirm } }, options),
  };
}
