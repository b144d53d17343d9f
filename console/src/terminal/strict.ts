/**
 * Makes xterm.js work under a Content Security Policy without inline styles. xterm.js writes colours into
 * `<style>` elements and, without WebGL, into `style` attributes; the policy forbids both. This module
 * redirects them to constructed style sheets and to the elements' `style` property.
 */

const made = new WeakMap<Node, CSSStyleSheet>();

/** Replacement of a `<style>` element: text that is written into it becomes a style sheet of the document. */
function sheet(): HTMLElement {
  const rules = new CSSStyleSheet();
  document.adoptedStyleSheets.push(rules);
  const placeholder = create.call(document, "span") as HTMLElement;
  placeholder.hidden = true;
  made.set(placeholder, rules);
  Object.defineProperty(placeholder, "textContent", { set: (text: string) => rules.replaceSync(text) });
  Object.defineProperty(placeholder, "remove", {
    value: () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== rules);
      Element.prototype.remove.call(placeholder);
    },
  });
  return placeholder;
}

const create = document.createElement;
const set = HTMLSpanElement.prototype.setAttribute;

document.createElement = function (this: Document, name: string, options?: ElementCreationOptions): HTMLElement {
  return name === "style" ? sheet() : create.call(this, name, options);
} as typeof document.createElement;

HTMLSpanElement.prototype.setAttribute = function (name: string, value: string): void {
  if (name === "style") this.style.cssText = value;
  else set.call(this, name, value);
};

export {};
