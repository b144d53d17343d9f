/** Dialog that pulls an image. */

import { useState } from "preact/hooks";
import { closeDialog, Dialog, Form, openDialog } from "../../parts/dialog";
import { Field } from "../../parts/field";
import { pull } from "./pulls";

/** Open the dialog. */
export function openPull(done: () => Promise<void>): void {
  openDialog(() => {
    const [image, setImage] = useState("");
    return (
      <Dialog title="Pull an image">
        <Form
          act="Pull"
          ready={image.trim() !== ""}
          run={async () => {
            pull(image.trim(), done);
            closeDialog();
          }}
        >
          <Field label="Image" value={image} set={setImage} placeholder="debian:13, ghcr.io/owner/name:tag" mono first note="Without a registry, Docker Hub is meant." />
        </Form>
      </Dialog>
    );
  });
}
