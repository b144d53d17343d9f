/** Entry point of the console. */

import { render } from "preact";
import { App } from "./app";
import { start as access } from "./lib/access";
import { start as follow } from "./lib/events";
import { start as handover } from "./lib/handover";
import { start as health } from "./lib/health";
import { start as keys } from "./lib/keys";
import { start as sandboxes } from "./lib/sandboxes";
import "./style/base.css";
import "./style/parts.css";
import "./style/pages.css";
import "./style/sandbox.css";
import "./style/work.css";

handover();
access();
sandboxes();
keys();
follow();
health();
render(<App />, document.getElementById("app")!);
