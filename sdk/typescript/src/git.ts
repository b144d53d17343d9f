/** Cloning with the git that is installed in the sandbox. */

import { IsoletError } from "./error.js";

/** Options of a clone. */
export interface GitCheckoutOptions {
  /** Branch or tag; the repository's `HEAD` by default. */
  branch?: string;
  /**
   * A new or empty directory; by default, the repository's name in `/workspace` or in the session's initial
   * directory.
   */
  targetDir?: string;
  /** Number of commits of history; all by default. */
  depth?: number;
  /** Time until the clone is aborted, in milliseconds; unlimited by default. */
  timeout?: number;
}

/** A cloned repository. */
export interface GitCheckout {
  success: true;
  /** Address without credentials. */
  repoUrl: string;
  /** Checked-out branch; `undefined` when a tag is checked out. */
  branch: string | undefined;
  /** Checked-out commit; `undefined` in a repository without commits. */
  commit: string | undefined;
  /** Absolute path in the sandbox. */
  targetDir: string;
  /** Start time in ISO 8601. */
  timestamp: string;
}

/** Program, arguments and environment that clone a repository. */
export interface GitCall {
  /** Address without credentials. */
  repoUrl: string;
  argv: string[];
  env: Record<string, string>;
}

// $1 is the target directory, the rest are git's arguments. Values of the caller are arguments only, never
// part of the script.
const CLONE = `dir=$1; shift
git clone --quiet "$@" || exit
cd -- "$dir" && pwd && { git symbolic-ref --quiet --short HEAD || echo; } && { git rev-parse --quiet --verify HEAD || echo; }`;

// Credential helper that reads the environment: the password appears in no argument, output or file.
const HELPER = `!f() { test "$1" = get && printf 'username=%s\\npassword=%s\\n' "$ISOLET_GIT_USERNAME" "$ISOLET_GIT_PASSWORD"; }; f`;

/** Build the command that clones `url`. */
export function cloneCall(url: string, options: GitCheckoutOptions): GitCall {
  const { branch, depth } = options;
  if (depth !== undefined && !(Number.isSafeInteger(depth) && depth >= 1)) {
    throw new IsoletError(0, "bad_depth", `${depth} is not a number of commits`, "give 1 or more");
  }
  const { cleanUrl, env } = splitCredentials(url);
  const dir = options.targetDir ?? repositoryName(cleanUrl);
  const args = ["--", cleanUrl, dir];
  if (depth !== undefined) args.unshift(`--depth=${depth}`);
  if (branch !== undefined) args.unshift(`--branch=${branch}`);
  return { repoUrl: cleanUrl, argv: ["bash", "-c", CLONE, "git-checkout", dir, ...args], env };
}

/** Parse the output of a clone. */
export function checkoutFromOutput(call: GitCall, stdout: string, timestamp: string): GitCheckout {
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

/** Convert a failed clone to an error. */
export function cloneError(call: GitCall, code: number, stderr: string, timedOut: boolean): IsoletError {
  if (timedOut) {
    const hint = "delete the partial clone in the target directory, or raise timeout";
    return new IsoletError(0, "timeout", `git clone ${call.repoUrl}: timed out`, hint);
  }
  const missing = code === 127;
  const hint = missing ? "use an image that has git" : "without network access, a sandbox can only clone from its own files";
  const text = `git clone ${call.repoUrl} failed (exit ${code}): ${stderr.trim()}`;
  return new IsoletError(0, missing ? "no_git" : "git_failed", text, hint);
}

/** Split an address into the address without credentials, and an environment that passes them to git. */
function splitCredentials(url: string): { cleanUrl: string; env: Record<string, string> } {
  const env: Record<string, string> = { GIT_TERMINAL_PROMPT: "0" };
  const [, scheme, user, rest] = /^(https?:\/\/)([^/?#]*)@([^@/?#]*(?:[/?#].*)?)$/is.exec(url) ?? [];
  if (scheme === undefined || user === undefined || rest === undefined) return { cleanUrl: url, env };
  const [, name = "", password = ""] = /^([^:]*):?(.*)$/s.exec(user)!;
  const cleanUrl = scheme + rest;
  const origin = /^https?:\/\/[^/?#]*/i.exec(cleanUrl)![0];
  const [username, secret] = [name, password].map(percentDecode) as [string, string];
  if (/[\r\n\0]/.test(username + secret)) {
    throw new IsoletError(0, "bad_url", "a user name or password cannot contain a line break or NUL");
  }
  env["ISOLET_GIT_USERNAME"] = username;
  env["ISOLET_GIT_PASSWORD"] = secret;
  // For this host only; the empty value removes other helpers.
  env["GIT_CONFIG_COUNT"] = "2";
  env["GIT_CONFIG_KEY_0"] = env["GIT_CONFIG_KEY_1"] = `credential.${origin}.helper`;
  env["GIT_CONFIG_VALUE_0"] = "";
  env["GIT_CONFIG_VALUE_1"] = HELPER;
  return { cleanUrl, env };
}

function percentDecode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new IsoletError(0, "bad_url", "credentials in an address must be percent-encoded");
  }
}

/** Name of a repository: the last part of its address. */
function repositoryName(url: string): string {
  const path = url.replace(/[?#].*$/s, "").replace(/\/+$/, "").replace(/(\/?\.git)$/, "").replace(/\/+$/, "");
  const name = path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf(":")) + 1);
  if (name === "" || name === "." || name === "..") {
    throw new IsoletError(0, "bad_url", `cannot derive a directory name from ${url}`, "pass targetDir");
  }
  return name;
}
