/**
 * What a request is for: of the service `create`, `list`, `get`, `delete`, `mark`, `renew`, `endpoint`; of a daemon
 * what the guard is asked, `claim`, `release`, `run` …, or `exec`.
 */
export function verbOf(method: string, path: string, body: string): string {
  if (/\/proxy\/\d+\/command$/.test(path)) {
    return /holdfast-guard' '([a-z]+)'/.exec(body)?.[1] ?? "exec";
  }
  const [, , id = "", verb = ""] = path.split("/");
  if (verb === "metadata") return "mark";
  if (verb === "renew-expiration") return "renew";
  if (verb === "endpoints") return "endpoint";
  if (id === "") return method === "POST" ? "create" : "list";
  return method === "DELETE" ? "delete" : "get";
}
