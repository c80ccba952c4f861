const entities = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Text for HTML and XML, in content and in attributes. */
export function escape(text) {
  return String(text).replaceAll(/[&<>"']/g, (letter) => entities[letter]);
}

export function slugify(text) {
  return text
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "");
}

/** By code units: `localeCompare` would depend on the machine. */
export function compare(a, b) {
  return a < b ? -1 : Number(a > b);
}
