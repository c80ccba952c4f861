/** Which methods a path has, for 405 and its Allow. The router itself only knows "not found". */
export interface RouteTable {
  add(method: string, pattern: string): void;
  methodsAt(url: string): string[];
}

export function routeTable(): RouteTable {
  const byPattern = new Map<string, { readonly shape: RegExp; readonly methods: Set<string> }>();
  return {
    add(method, pattern) {
      const entry = byPattern.get(pattern) ?? { shape: shapeOf(pattern), methods: new Set<string>() };
      byPattern.set(pattern, entry);
      entry.methods.add(method);
    },
    methodsAt(url) {
      const [path = ""] = url.split("?", 1);
      const found = [...byPattern.values()].filter(({ shape }) => shape.test(path));
      return [...new Set(found.flatMap(({ methods }) => [...methods]))].sort();
    },
  };
}

/** `/v1/jobs/:id(^[^:/]+)::cancel` in the router's language: a parameter, then a literal colon. */
function shapeOf(pattern: string): RegExp {
  const source = pattern
    .replaceAll("::", "\u0000")
    .replace(/:([a-z_]+)(\([^)]*\))?/gi, "\u0001")
    .replace(/[.*+?^${}()|[\]\\]/g, "\\$&")
    .replaceAll("\u0001", "[^/:]+")
    .replaceAll("\u0000", "(?::|%3[aA])");
  return new RegExp(`^${source}$`);
}
