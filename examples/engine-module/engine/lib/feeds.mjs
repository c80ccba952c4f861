import { escape } from "./escape.mjs";

/** Atom (RFC 4287). Updated when the newest note was, and not when the engine ran. */
export function atomFeed(site, notes) {
  const entries = notes.map(
    (note) => `  <entry>
    <title>${escape(note.title)}</title>
    <id>${escape(site.base_url + note.path)}</id>
    <link href="${escape(site.base_url + note.path)}"/>
    <updated>${note.date}T00:00:00Z</updated>
    <summary>${escape(note.summary ?? "")}</summary>
  </entry>`,
  );
  return `<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
  <title>${escape(site.title)}</title>
  <id>${escape(site.base_url)}</id>
  <link href="${escape(site.base_url)}feed.xml" rel="self"/>
  <updated>${notes[0]?.date ?? "1970-01-01"}T00:00:00Z</updated>
  <author><name>${escape(site.author)}</name></author>
${entries.join("\n")}
</feed>
`;
}

export function sitemap(site, documents) {
  const urls = documents.map(({ path, date }) => {
    const changed = date === undefined ? "" : `<lastmod>${date}</lastmod>`;
    return `  <url><loc>${escape(site.base_url + path)}</loc>${changed}</url>`;
  });
  return `<?xml version="1.0" encoding="utf-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
${urls.join("\n")}
</urlset>
`;
}
