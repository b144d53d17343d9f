/** Dialog that makes an image from a snapshot. */

import type { Snapshot } from "@isolet/sdk";
import { useState } from "preact/hooks";
import { api } from "../../lib/api";
import { visibleName } from "../../lib/format";
import { go } from "../../lib/route";
import { Button } from "../../parts/button";
import { closeDialog, Dialog, Form, openDialog } from "../../parts/dialog";
import { Check, Field } from "../../parts/field";

interface Made {
  name: string;
  warnings: { path: string; kind: string }[];
  warnings_total: number;
}

/** Open the dialog, which then shows files that may hold secrets. */
export function openImage(of: Snapshot): void {
  openDialog(() => {
    const [name, setName] = useState("");
    const [workspace, setWorkspace] = useState(true);
    const [shells, setShells] = useState(false);
    const [env, setEnv] = useState(false);
    const [made, setMade] = useState<Made>();
    const make = async (): Promise<void> => {
      setMade(await api().json<Made>("/v1/images", { json: { snapshot: of.id, name: name.trim(), workspace, shells, env } }));
    };
    if (made) {
      return (
        <Dialog title="The image is complete">
          <div class="form">
            <p>
              Sandboxes can be created from <code>{visibleName(made.name)}</code>.
            </p>
            {made.warnings_total > 0 && (
              <>
                <p>Its files include {made.warnings_total} that usually hold secrets:</p>
                <ul class="items">
                  {made.warnings.slice(0, 10).map(({ path, kind }) => (
                    <li key={path}>
                      <code>{visibleName(path)}</code> <span class="dim">{kind}</span>
                    </li>
                  ))}
                </ul>
              </>
            )}
            <footer>
              <Button onClick={closeDialog}>Close</Button>
              <Button
                kind="main"
                onClick={() => {
                  closeDialog();
                  go("images");
                }}
              >
                Show images
              </Button>
            </footer>
          </div>
        </Dialog>
      );
    }
    return (
      <Dialog title={`Make an image from ${visibleName(of.name ?? of.id)}`}>
        <Form act="Make image" ready={name.trim() !== ""} run={make}>
          <Field label="Name of the image" value={name} set={setName} placeholder="tools:1" mono first />
          <Check value={workspace} set={setWorkspace}>
            With the files of the workspace
          </Check>
          <Check value={shells} set={setShells}>
            With the sessions and the state of their shells, whose variables may hold secrets
          </Check>
          <Check value={env} set={setEnv}>
            With the variables of the sandbox, which may hold secrets
          </Check>
        </Form>
      </Dialog>
    );
  });
}
