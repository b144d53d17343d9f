/**
 * CodeMirror, in a shadow root. There it writes its style sheets as constructed ones, so that the Content Security
 * Policy needs no exception. This module is loaded when a file is edited for the first time.
 */

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, StreamLanguage, syntaxHighlighting, type StreamParser } from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { languageOf } from "./languages";

/** A running editor. */
export interface Editor {
  /** The text, with the line ends of the file. */
  text: () => string;
  /** Replace the text, without a way back. */
  load: (text: string) => void;
  focus: () => void;
  wrap: (wraps: boolean) => void;
  dispose: () => void;
}

const theme = EditorView.theme({
  "&": { height: "100%", color: "var(--ink)", backgroundColor: "var(--panel)", fontSize: "0.93em" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--ink)", padding: "8px 0" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--faint)", border: "none", paddingRight: "6px" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 26%, transparent) !important" },
  ".cm-selectionMatch": { backgroundColor: "color-mix(in srgb, var(--accent) 14%, transparent)" },
  ".cm-searchMatch": { backgroundColor: "color-mix(in srgb, var(--wait) 26%, transparent)" },
  ".cm-searchMatch-selected": { backgroundColor: "color-mix(in srgb, var(--wait) 48%, transparent)" },
  ".cm-matchingBracket": { backgroundColor: "var(--accent-soft)", outline: "1px solid var(--line-strong)" },
  ".cm-panels": { backgroundColor: "var(--ground)", color: "var(--ink)", borderColor: "var(--line)" },
  ".cm-panel input, .cm-panel button": { fontFamily: "var(--ui)", fontSize: "13px", color: "var(--ink)", background: "var(--panel)", border: "1px solid var(--line-strong)", borderRadius: "4px" },
  ".cm-panel button": { backgroundImage: "none", padding: "2px 8px" },
  ".cm-specialChar": { color: "var(--bad)" },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--code-number)" },
  { tag: [tags.comment, tags.meta], color: "var(--dim)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.className, tags.tagName, tags.namespace], color: "var(--code-type)" },
  { tag: [tags.definition(tags.variableName), tags.function(tags.variableName), tags.propertyName, tags.attributeName], color: "var(--code-name)" },
  { tag: tags.heading, fontWeight: "700" },
  { tag: tags.strong, fontWeight: "700" },
  { tag: tags.emphasis, fontStyle: "italic" },
  { tag: [tags.link, tags.url], color: "var(--accent)" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

/** Line ends: those of the file if all are the same, so that a file is saved as it was. */
const lineEnds = (text: string): string => (/\r\n/.test(text) && !/[^\r]\n|^\n/.test(text) ? "\r\n" : "\n");

/** Open an editor in an element. */
export async function openEditor(host: HTMLElement, options: { name: string; text: string; onChange: () => void; onSave: () => void }): Promise<Editor> {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  root.replaceChildren();
  const mode = await languageOf(options.name);
  const wrapping = new Compartment();
  const extensions: Extension[] = [
    lineNumbers(),
    history(),
    drawSelection(),
    indentOnInput(),
    bracketMatching(),
    highlightActiveLine(),
    highlightActiveLineGutter(),
    highlightSelectionMatches(),
    search({ top: true }),
    indentUnit.of(indentOf(options.text)),
    EditorState.tabSize.of(4),
    keymap.of([{ key: "Mod-s", preventDefault: true, run: () => (options.onSave(), true) }, ...searchKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]),
    EditorView.contentAttributes.of({ "aria-label": `Content of ${options.name}`, spellcheck: "false", autocapitalize: "off" }),
    EditorView.updateListener.of((update) => update.docChanged && options.onChange()),
    wrapping.of([]),
    syntaxHighlighting(colours),
    theme,
    ...(mode ? [StreamLanguage.define(mode as StreamParser<unknown>)] : []),
  ];
  const state = (text: string): EditorState => EditorState.create({ doc: text, extensions: [EditorState.lineSeparator.of(lineEnds(text)), extensions] });
  const view = new EditorView({ state: state(options.text), parent: root as unknown as HTMLElement, root });
  return {
    text: () => view.state.sliceDoc(),
    load: (text) => view.setState(state(text)),
    focus: () => view.focus(),
    wrap: (wraps) => view.dispatch({ effects: wrapping.reconfigure(wraps ? EditorView.lineWrapping : []) }),
    dispose: () => view.destroy(),
  };
}

/** The indentation of a text: a tab, or as many spaces as its first indented line has. */
function indentOf(text: string): string {
  const first = /^(\t| {2,8})\S/m.exec(text)?.[1];
  return first ?? "  ";
}
