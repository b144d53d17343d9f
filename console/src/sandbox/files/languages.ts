/** Languages that the editor colours, by the names of files. Each is loaded when it is needed. */

type Load = () => Promise<unknown>;

const shell: Load = async () => (await import("@codemirror/legacy-modes/mode/shell")).shell;
const clike = async (name: "c" | "cpp" | "java" | "csharp" | "kotlin" | "scala"): Promise<unknown> => (await import("@codemirror/legacy-modes/mode/clike"))[name];
const script = async (name: "javascript" | "typescript" | "json"): Promise<unknown> => (await import("@codemirror/legacy-modes/mode/javascript"))[name];
const css: Load = async () => (await import("@codemirror/legacy-modes/mode/css")).css;
const python: Load = async () => (await import("@codemirror/legacy-modes/mode/python")).python;
const properties: Load = async () => (await import("@codemirror/legacy-modes/mode/properties")).properties;
const xml = async (name: "html" | "xml"): Promise<unknown> => (await import("@codemirror/legacy-modes/mode/xml"))[name];
const sql: Load = async () => (await import("@codemirror/legacy-modes/mode/sql")).standardSQL;

/** By the extension, in lower case. */
const EXTENSIONS: Record<string, Load> = {
  sh: shell,
  bash: shell,
  zsh: shell,
  py: python,
  pyi: python,
  js: () => script("javascript"),
  mjs: () => script("javascript"),
  cjs: () => script("javascript"),
  jsx: () => script("javascript"),
  ts: () => script("typescript"),
  tsx: () => script("typescript"),
  json: () => script("json"),
  jsonl: () => script("json"),
  rs: async () => (await import("@codemirror/legacy-modes/mode/rust")).rust,
  go: async () => (await import("@codemirror/legacy-modes/mode/go")).go,
  rb: async () => (await import("@codemirror/legacy-modes/mode/ruby")).ruby,
  lua: async () => (await import("@codemirror/legacy-modes/mode/lua")).lua,
  pl: async () => (await import("@codemirror/legacy-modes/mode/perl")).perl,
  swift: async () => (await import("@codemirror/legacy-modes/mode/swift")).swift,
  r: async () => (await import("@codemirror/legacy-modes/mode/r")).r,
  c: () => clike("c"),
  h: () => clike("c"),
  cc: () => clike("cpp"),
  cpp: () => clike("cpp"),
  hpp: () => clike("cpp"),
  java: () => clike("java"),
  cs: () => clike("csharp"),
  kt: () => clike("kotlin"),
  scala: () => clike("scala"),
  yaml: async () => (await import("@codemirror/legacy-modes/mode/yaml")).yaml,
  yml: async () => (await import("@codemirror/legacy-modes/mode/yaml")).yaml,
  toml: async () => (await import("@codemirror/legacy-modes/mode/toml")).toml,
  ini: properties,
  conf: properties,
  env: properties,
  properties,
  css,
  scss: css,
  html: () => xml("html"),
  htm: () => xml("html"),
  xml: () => xml("xml"),
  svg: () => xml("xml"),
  sql,
  diff: async () => (await import("@codemirror/legacy-modes/mode/diff")).diff,
  patch: async () => (await import("@codemirror/legacy-modes/mode/diff")).diff,
};

/** By the whole name, in lower case. */
const NAMES: Record<string, Load> = {
  dockerfile: async () => (await import("@codemirror/legacy-modes/mode/dockerfile")).dockerFile,
  ".bashrc": shell,
  ".profile": shell,
  ".gitconfig": properties,
};

/** The language of a file; `undefined` for plain text. */
export async function languageOf(name: string): Promise<unknown> {
  const low = name.toLowerCase();
  const load = NAMES[low] ?? EXTENSIONS[/\.([^.]+)$/.exec(low)?.[1] ?? ""];
  return load?.().catch(() => undefined);
}
