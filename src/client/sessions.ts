import type { ActivationState, ActivationSubmission, ActivationView } from "../wire/activation.ts";
import type {
  RevisionView,
  SessionPatch,
  SessionState,
  SessionSubmission,
  SessionView,
} from "../wire/session.ts";
import { unexpected } from "./api-error.ts";
import { labelQuery, type Pages, pages, type WatchedPage } from "./pages.ts";
import type { Conditional, Mutation, Resources } from "./resource.ts";
import type { CallOptions, Transport } from "./transport.ts";

export interface SessionFilter extends CallOptions {
  /** The agent's name. */
  readonly agent?: string | undefined;
  readonly state?: SessionState | undefined;
  /** All of these. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Sessions of a page. */
  readonly limit?: number | undefined;
}

export interface ActivationFilter extends CallOptions {
  readonly state?: ActivationState | undefined;
  /** In the order of admission, `asc`, when left out. */
  readonly order?: "asc" | "desc" | undefined;
  /** Activations of a page. */
  readonly limit?: number | undefined;
}

export type SessionList = Pages<SessionView, WatchedPage<SessionView>>;
export type ActivationList = Pages<ActivationView, WatchedPage<ActivationView>>;
export type RevisionList = Pages<RevisionView>;

/** A bundle on its way. The bytes are the committed ones only when their SHA-256 is `revision.bundle.sha256`. */
export interface BundleDownload {
  readonly revision: RevisionView;
  readonly body: ReadableStream<Uint8Array>;
}

export interface SessionCalls {
  createSession(session: SessionSubmission, options?: Mutation): Promise<SessionView>;
  getSession(id: string, options?: CallOptions): Promise<SessionView>;
  listSessions(filter?: SessionFilter): SessionList;
  patchSession(
    id: string,
    patch: SessionPatch,
    options: Mutation & { readonly ifMatch: string },
  ): Promise<SessionView>;
  /** Never taken back: what is at work is cancelled, what it remembers is removed. */
  deleteSession(id: string, options?: Conditional): Promise<SessionView>;
  /** From now on; an activation that waits for exactly this runs again. */
  grantPermission(id: string, permission: string, options?: Conditional): Promise<SessionView>;

  /** Admitted once by its id (S2): the same again gives the activation that is there. */
  admitActivation(
    session: string,
    activation: ActivationSubmission,
    options?: Mutation,
  ): Promise<ActivationView>;
  /** The session's transcript. */
  listActivations(session: string, filter?: ActivationFilter): ActivationList;
  getActivation(session: string, id: string, options?: CallOptions): Promise<ActivationView>;
  cancelActivation(
    session: string,
    id: string,
    options?: Conditional & { readonly reason?: string | undefined },
  ): Promise<ActivationView>;
  retryActivation(session: string, id: string, options?: Conditional): Promise<ActivationView>;

  /** What was committed, newest first. */
  listRevisions(session: string, filter?: CallOptions & { readonly limit?: number }): RevisionList;
  getRevision(session: string, revision: number, options?: CallOptions): Promise<RevisionView>;
  downloadBundle(session: string, revision: number, options?: CallOptions): Promise<BundleDownload>;
}

export function sessionCalls(transport: Transport, { one }: Resources): SessionCalls {
  const path = (id: string) => `/v1/sessions/${encodeURIComponent(id)}`;
  const turn = (session: string, id: string) => `${path(session)}/activations/${encodeURIComponent(id)}`;
  const getRevision: SessionCalls["getRevision"] = async (session, revision, { signal } = {}) =>
    (await transport.json<RevisionView>({ path: `${path(session)}/revisions/${revision}`, signal })).value;

  return {
    createSession: (body, options) => one({ ...options, method: "POST", path: "/v1/sessions", body }),
    getSession: (id, options) => one({ ...options, path: path(id) }),
    listSessions: ({ agent, state, labels, limit, signal } = {}) =>
      pages(transport, {
        path: "/v1/sessions",
        query: { agent, state, label: labelQuery(labels), limit },
        signal,
      }),
    patchSession: (id, body, options) => one({ ...options, method: "PATCH", path: path(id), body }),
    deleteSession: (id, options) => one({ ...options, method: "DELETE", path: path(id) }),
    grantPermission: (id, permission, options) =>
      one({ ...options, method: "POST", path: `${path(id)}:grant`, body: { permission } }),

    admitActivation: (session, body, options) =>
      one({ ...options, method: "POST", path: `${path(session)}/activations`, body }),
    listActivations: (session, { state, order, limit, signal } = {}) =>
      pages(transport, { path: `${path(session)}/activations`, query: { state, order, limit }, signal }),
    getActivation: (session, id, options) => one({ ...options, path: turn(session, id) }),
    cancelActivation: (session, id, { reason, ...options } = {}) =>
      one({
        ...options,
        method: "POST",
        path: `${turn(session, id)}:cancel`,
        body: reason === undefined ? {} : { reason },
      }),
    retryActivation: (session, id, options) =>
      one({ ...options, method: "POST", path: `${turn(session, id)}:retry`, body: {} }),

    listRevisions: (session, { limit, signal } = {}) =>
      pages(transport, { path: `${path(session)}/revisions`, query: { limit }, signal }),
    getRevision,
    async downloadBundle(session, number, { signal } = {}) {
      const revision = await getRevision(session, number, { signal });
      const bundle = `${path(session)}/revisions/${number}/bundle`;
      const headers = { accept: "*/*" };
      const response = await transport.send({ path: bundle, headers, signal, stream: true });
      if (response.body === null) throw unexpected("the bundle has no body", response.status);
      return { revision, body: response.body };
    },
  };
}
