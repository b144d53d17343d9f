/**
 * Viewer for one file. Text is shown as text and images by their detected type; file content is never
 * interpreted as a document.
 */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api, describeError } from "../../lib/api";
import { saveFile } from "../../lib/download";
import { bytes, visibleName } from "../../lib/format";
import { attempt } from "../../lib/notice";
import { Button } from "../../parts/button";
import { Loading, LoadError } from "../../parts/state";
import { mayChange } from "../../lib/access";
import { EDIT_BYTES_MAX } from "./content";
import { address, head, type Entry } from "./disk";
import { Editor, hasDraft } from "./editor";

/** Limit on displayed text. */
const TEXT_BYTES_MAX = 512 * 1024;
/** Limit on the size of displayed images. */
const IMAGE_BYTES_MAX = 24 * 1024 * 1024;
/** Limit on downloads: the file is held in the page's memory. */
const DOWNLOAD_BYTES_MAX = 2 * 1024 * 1024 * 1024;

/**
 * Image types, detected by their first bytes instead of file names. SVG is excluded: it is a document that
 * can contain scripts.
 */
const IMAGES: { kind: string; begins: (number | undefined)[] }[] = [
  { kind: "image/png", begins: [0x89, 0x50, 0x4e, 0x47] },
  { kind: "image/jpeg", begins: [0xff, 0xd8, 0xff] },
  { kind: "image/gif", begins: [0x47, 0x49, 0x46, 0x38] },
  { kind: "image/webp", begins: [0x52, 0x49, 0x46, 0x46, undefined, undefined, undefined, undefined, 0x57, 0x45, 0x42, 0x50] },
  { kind: "image/avif", begins: [undefined, undefined, undefined, undefined, 0x66, 0x74, 0x79, 0x70, 0x61, 0x76, 0x69, 0x66] },
];

function image(data: Uint8Array): string | undefined {
  return IMAGES.find(({ begins }) => begins.every((byte, i) => byte === undefined || data[i] === byte))?.kind;
}

type FileView =
  | { kind: "text"; lines: string[]; cut: boolean }
  | { kind: "image"; url: string }
  | { kind: "binary" }
  | { kind: "wrong"; message: string; hint: string };

/** Download a file, or a directory as a tar archive. */
export async function download(sandbox: string, entry: Entry): Promise<void> {
  await attempt(`Could not download ${visibleName(entry.name)}`, async () => {
    if (entry.size > DOWNLOAD_BYTES_MAX) throw new Error("the file is too large to download in a browser page; use curl or the command line");
    const query = entry.type === "directory" ? "?tar=1" : "";
    const file = await api().send(address(sandbox, entry) + query);
    saveFile(await file.blob(), entry.type === "directory" ? `${entry.name}.tar` : entry.name);
  });
}

async function look(sandbox: string, entry: Entry, signal: AbortSignal): Promise<FileView> {
  const data = await head(sandbox, entry, TEXT_BYTES_MAX, signal);
  const kind = image(data);
  if (kind !== undefined && entry.size <= IMAGE_BYTES_MAX) {
    const all = await api().send(address(sandbox, entry), { signal });
    return { kind: "image", url: URL.createObjectURL(new Blob([await all.arrayBuffer()], { type: kind })) };
  }
  if (data.subarray(0, 8192).includes(0)) return { kind: "binary" };
  const cut = entry.size > data.length;
  const text = new TextDecoder().decode(data);
  return { kind: "text", lines: text.replace(/\n$/, "").split("\n"), cut };
}

/** The panel. */
export function Viewer({ sandbox, of, leave, saved }: { sandbox: string; of: Entry; leave: () => void; saved: () => void }): JSX.Element {
  const [seen, setSeen] = useState<FileView>();
  const [wraps, setWraps] = useState(false);
  const [edits, setEdits] = useState(hasDraft(sandbox, of.path));
  useEffect(() => setEdits(hasDraft(sandbox, of.path)), [sandbox, of.path]);
  useEffect(() => {
    const ends = new AbortController();
    let url: string | undefined;
    setSeen(undefined);
    look(sandbox, of, ends.signal)
      .then((now) => {
        if (now.kind === "image") url = now.url;
        if (ends.signal.aborted && url !== undefined) URL.revokeObjectURL(url);
        else setSeen(now);
      })
      .catch((error: unknown) => !ends.signal.aborted && setSeen({ kind: "wrong", ...describeError(error) }));
    return () => {
      ends.abort();
      if (url !== undefined) URL.revokeObjectURL(url);
    };
  }, [sandbox, of.path, of.modified_ms, of.size]);
  return (
    <section class="viewer" aria-label={`File ${visibleName(of.name)}`}>
      <header>
        <h2 class="mono">{visibleName(of.name)}</h2>
        <span class="dim">{bytes(of.size)}</span>
        {seen?.kind === "text" && !edits && mayChange.value && (
          <Button icon="edit" disabled={of.size > EDIT_BYTES_MAX} onClick={() => setEdits(true)}>
            Edit
          </Button>
        )}
        {seen?.kind === "text" && !edits && (
          <Button kind="quiet" pressed={wraps} onClick={() => setWraps(!wraps)}>
            Wrap
          </Button>
        )}
        <Button icon="down" kind="quiet" label="Download" onClick={() => void download(sandbox, of)} />
        <Button icon="close" kind="quiet" label="Close the file" onClick={leave} />
      </header>
      {edits && <Editor key={`${sandbox}:${of.path}`} sandbox={sandbox} of={of} saved={saved} leave={() => setEdits(false)} />}
      {!seen && !edits && <Loading rows={8} />}
      {seen?.kind === "text" && !edits && (
        <pre class={`text ${wraps ? "wraps" : ""}`} tabIndex={0}>
          {seen.lines.map((line, i) => (
            <span key={i} class="text-line">
              {line}
              {"\n"}
            </span>
          ))}
          {seen.cut && <span class="dim">… only the first {bytes(TEXT_BYTES_MAX)} are shown{"\n"}</span>}
        </pre>
      )}
      {seen?.kind === "image" && (
        <div class="image">
          <img src={seen.url} alt={of.name} />
        </div>
      )}
      {seen?.kind === "binary" && (
        <div class="empty">
          <h3>This file is not text</h3>
          <Button icon="down" onClick={() => void download(sandbox, of)}>
            Download {bytes(of.size)}
          </Button>
        </div>
      )}
      {seen?.kind === "wrong" && <LoadError {...seen} />}
    </section>
  );
}
