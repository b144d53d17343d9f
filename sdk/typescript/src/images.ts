/** Images: root file systems that sandboxes start from. */

/** Options of an image from a snapshot. */
export interface CommitOptions {
  /** Make the files of the workspace the first content of the workspaces of its sandboxes; default true. */
  workspace?: boolean;
  /** Make the variables of the sandbox those of the image. They may hold secrets; default false. */
  env?: boolean;
  /**
   * Let its sandboxes start with the sessions of the snapshot and the saved states of their shells. Their variables
   * may hold secrets; default false.
   */
  shells?: boolean;
}

/** An image of the key's tenant. */
export interface ImageInfo {
  digest: string;
  /** The names that the tenant has for it. */
  names: string[];
  /** The tenant that it belongs to. */
  owner: string;
  /** Where it comes from. */
  source: "registry" | "archive" | "snapshot";
  /** Unpacked size. */
  unpackedBytes: number;
  layers: number;
  /** Whether its lowest layer is the programs of the server's machine. */
  onHost: boolean;
  /** Whether its sandboxes start with files in their workspace. */
  workspace: boolean;
  /** Whether its sandboxes start with sessions and the saved states of their shells. */
  shells: boolean;
  /** When it was pulled, imported or made. */
  createdAt: Date;
}

/** A file in an image that usually holds secrets, found by its name. */
export interface PrivateFile {
  path: string;
  kind: "credentials" | "history";
}

/** An image that was made from a snapshot. */
export interface CommittedImage extends ImageInfo {
  /** The name under which it was recorded, in full. */
  name: string;
  /** The id of the snapshot. */
  snapshotId: string;
  /** Files that usually hold secrets; at most 100. */
  warnings: PrivateFile[];
  /** How many such files there are. */
  warningsTotal: number;
}

/** The server's JSON. */
export interface ImageJson {
  digest: string;
  names: string[];
  owner: string;
  source: ImageInfo["source"];
  unpacked_bytes: number;
  layers: number;
  on_host: boolean;
  workspace: boolean;
  shells?: boolean;
  pulled_at_ms: number;
}

/** The server's JSON of a new image. */
export interface CommittedImageJson extends ImageJson {
  name: string;
  snapshot: string;
  warnings: PrivateFile[];
  warnings_total: number;
}

/** Convert the server's JSON. */
export function imageFromJson(json: ImageJson): ImageInfo {
  return {
    digest: json.digest,
    names: json.names,
    owner: json.owner,
    source: json.source,
    unpackedBytes: json.unpacked_bytes,
    layers: json.layers,
    onHost: json.on_host,
    workspace: json.workspace,
    shells: json.shells ?? false,
    createdAt: new Date(json.pulled_at_ms),
  };
}

/** Convert the server's JSON of a new image. */
export function committedImage(json: CommittedImageJson): CommittedImage {
  return {
    ...imageFromJson(json),
    name: json.name,
    snapshotId: json.snapshot,
    warnings: json.warnings,
    warningsTotal: json.warnings_total,
  };
}

/** The path of an image by its name, whose slashes stay. */
export function imagePath(name: string): string {
  return `/v1/images/${name.split("/").map(encodeURIComponent).join("/")}`;
}
