/**
 * xterm.js within a policy that knows no inline style.
 *
 * It writes its colours into `<style>` elements and, drawing without WebGL, into `style` attributes;
 * the page's policy refuses both. What it means to put there goes the way that the policy allows
 * instead: into constructed style sheets, and into elements' own declarations.
 */

const made = new WeakMap<Node, CSSStyleSheet>();

/** An element that holds no rules itself: what is written into it becomes a sheet of the document. */
function sheet(): HTMLElement {
  const rules = new CSSStyleSheet();
  document.adoptedStyleSheets.push(rules);
  const stands = create.call(document, "span") as HTMLElement;
  stands.hidden = true;
  made.set(stands, rules);
  Object.defineProperty(stands, "textContent", { set: (text: string) => rules.replaceSync(text) });
  Object.defineProperty(stands, "remove", {
    value: () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== rules);
      Element.prototype.remove.call(stands);
    },
  });
  return stands;
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
