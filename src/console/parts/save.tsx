import { useEffect, useRef } from "preact/hooks";
import { ApiError, type ArtifactView } from "../../client/client.ts";
import { client } from "../account.ts";
import { bytes } from "../words.ts";
import { useDoing } from "./action.tsx";
import { Problem } from "./problem.tsx";

/** A page holds all of it before the browser writes a file; what is larger is for the command line. */
const bytesMax = 128 * 1024 ** 2;

/**
 * Saves an artifact. A link can't: whoever follows one sends the cookie without the page's own half of the sign-in. So
 * the page fetches the bytes, compares them with what was published, and hands the browser a file.
 */
export function Save({ artifact }: { readonly artifact: ArtifactView }) {
  const { doing, error, run } = useDoing();
  const saved = useRef<string | null>(null);
  const forget = () => {
    if (saved.current !== null) URL.revokeObjectURL(saved.current);
    saved.current = null;
  };
  // Not at once: a browser may still be reading it.
  useEffect(() => forget, []);
  if (artifact.bytes > bytesMax) return <span class="muted">more than {bytes(bytesMax)}: </span>;
  const save = async () => {
    const { body } = await client.downloadArtifact(artifact.job_id, artifact.name);
    const content = await new Response(body).blob();
    await compare(content, artifact);
    forget();
    saved.current = URL.createObjectURL(content);
    const link = document.createElement("a");
    link.href = saved.current;
    link.download = artifact.name;
    link.click();
  };
  return (
    <>
      <button type="button" disabled={doing} onClick={() => void run(save)}>
        {doing ? "…" : "Download"}
      </button>
      {error === null ? null : <Problem error={error} />}
    </>
  );
}

async function compare(content: Blob, { bytes: promised, sha256 }: ArtifactView): Promise<void> {
  // Pages that came by plain HTTP from elsewhere have no digests.
  const found = isSecureContext ? await digest(content) : sha256;
  if (content.size === promised && found === sha256) return;
  throw new ApiError({
    code: "content_mismatch",
    status: 0,
    detail: `what arrived is not what was published: ${content.size} bytes, not ${promised}`,
  });
}

async function digest(content: Blob): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", await content.arrayBuffer());
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
