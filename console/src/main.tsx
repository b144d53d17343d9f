/** Entry point of the console. */

import { render } from "preact";
import { App } from "./app";
import { start as follow } from "./lib/events";
import { start as health } from "./lib/health";
import { start as keys } from "./lib/keys";
import { start as sandboxes } from "./lib/sandboxes";
import "./style/base.css";
import "./style/parts.css";
import "./style/pages.css";
import "./style/sandbox.css";

sandboxes();
keys();
follow();
health();
render(<App />, document.getElementById("app")!);
