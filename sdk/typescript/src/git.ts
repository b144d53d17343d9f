/** Repositories cloned inside a sandbox, by its own git. */

import { IsoletError } from "./error.js";

/** How a repository is to be cloned. */
export interface GitCheckoutOptions {
  /** Branch or tag; what the repository's `HEAD` says unless told. */
  branch?: string;
  /** A directory that is not there, or empty; the repository's name in `/workspace` (or where the session
   *  begins) unless told. */
  targetDir?: string;
  /** So many commits of the history; all of it unless told. */
  depth?: number;
  /** Ends it after so many ms; never unless told. */
  timeout?: number;
}

/** A clone. */
export interface GitCheckout {
  success: true;
  /** Without its credentials. */
  repoUrl: string;
  /** What is checked out; `undefined` where that is no branch (a tag). */
  branch: string | undefined;
  /** What is checked out; `undefined` of a repository without commits. */
  commit: string | undefined;
  /** From the root of the sandbox on. */
  targetDir: string;
  /** When it was asked for, as ISO 8601. */
  timestamp: string;
}

/** How it is run: a program, its arguments and its environment. */
export interface GitCall {
  /** Without its credentials. */
  repoUrl: string;
  argv: string[];
  env: Record<string, string>;
}

// Where, then git's own arguments. What is asked for are arguments alone: none of it is a shell's text.
const CLONE = `dir=$1; shift
git clone --quiet "$@" || exit
cd -- "$dir" && pwd && { git symbolic-ref --quiet --short HEAD || echo; } && { git rev-parse --quiet --verify HEAD || echo; }`;

// Answers git with what only the environment holds: nothing of it is seen in arguments, output or files.
const HELPER = `!f() { test "$1" = get && printf 'username=%s\\npassword=%s\\n' "$ISOLET_GIT_USERNAME" "$ISOLET_GIT_PASSWORD"; }; f`;

/** What clones `url`. */
export function cloning(url: string, options: GitCheckoutOptions): GitCall {
  const { branch, depth } = options;
  if (depth !== undefined && !(Number.isSafeInteger(depth) && depth >= 1)) {
    throw new IsoletError(0, "bad_depth", `${depth} is no number of commits`, "give 1 or more");
  }
  const { plain, env } = parted(url);
  const dir = options.targetDir ?? named(plain);
  const words = ["--", plain, dir];
  if (depth !== undefined) words.unshift(`--depth=${depth}`);
  if (branch !== undefined) words.unshift(`--branch=${branch}`);
  return { repoUrl: plain, argv: ["bash", "-c", CLONE, "git-checkout", dir, ...words], env };
}

/** What a clone has said. */
export function cloned(call: GitCall, stdout: string, timestamp: string): GitCheckout {
  const lines = stdout.split("\n");
  const [branch, commit] = lines.slice(-3, -1);
  return {
    success: true,
    repoUrl: call.repoUrl,
    branch: branch || undefined,
    commit: commit || undefined,
    targetDir: lines.slice(0, -3).join("\n"),
    timestamp,
  };
}

/** Why there is none. */
export function failed(call: GitCall, code: number, stderr: string, timedOut: boolean): IsoletError {
  if (timedOut) {
    const hint = "what it has left in the target directory is to be deleted";
    return new IsoletError(0, "timeout", `git clone ${call.repoUrl}: not within the time`, hint);
  }
  const missing = code === 127;
  const hint = missing ? "use an image that has git" : "a sandbox without network reaches itself alone";
  const text = `git clone ${call.repoUrl} has failed (exit ${code}): ${stderr.trim()}`;
  return new IsoletError(0, missing ? "no_git" : "git_failed", text, hint);
}

/** An address, and its credentials as an environment. */
function parted(url: string): { plain: string; env: Record<string, string> } {
  const env: Record<string, string> = { GIT_TERMINAL_PROMPT: "0" };
  const [, scheme, user, rest] = /^(https?:\/\/)([^/?#]*)@([^@/?#]*(?:[/?#].*)?)$/is.exec(url) ?? [];
  if (scheme === undefined || user === undefined || rest === undefined) return { plain: url, env };
  const [, name = "", password = ""] = /^([^:]*):?(.*)$/s.exec(user)!;
  const plain = scheme + rest;
  const origin = /^https?:\/\/[^/?#]*/i.exec(plain)![0];
  const [username, secret] = [name, password].map(decoded) as [string, string];
  if (/[\r\n\0]/.test(username + secret)) {
    throw new IsoletError(0, "bad_url", "a user's name or password cannot hold a line break or NUL");
  }
  env["ISOLET_GIT_USERNAME"] = username;
  env["ISOLET_GIT_PASSWORD"] = secret;
  // For this host alone, in place of any other.
  env["GIT_CONFIG_COUNT"] = "2";
  env["GIT_CONFIG_KEY_0"] = env["GIT_CONFIG_KEY_1"] = `credential.${origin}.helper`;
  env["GIT_CONFIG_VALUE_0"] = "";
  env["GIT_CONFIG_VALUE_1"] = HELPER;
  return { plain, env };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new IsoletError(0, "bad_url", "the credentials of an address are percent-encoded");
  }
}

/** A repository's name: the last part of its address. */
function named(url: string): string {
  const path = url.replace(/[?#].*$/s, "").replace(/\/+$/, "").replace(/(\/?\.git)$/, "").replace(/\/+$/, "");
  const name = path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf(":")) + 1);
  if (name === "" || name === "." || name === "..") {
    throw new IsoletError(0, "bad_url", `${url} names no repository`, "give targetDir");
  }
  return name;
}
