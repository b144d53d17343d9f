"""Clones a repository, searches it, and copies its directory to another sandbox as an archive. The sandbox
has
no network, so the example clones from a repository that it creates inside.

    python3 examples/copy_directory.py
"""

from __future__ import annotations

import io

from isolet import Isolet

PROJECT = """
cd /srv/project && git init -q -b main && git add .
git -c user.name=me -c user.email=me@localhost commit -qm first
"""


def main() -> None:
    """Run the example."""
    with Isolet() as client:
        with client.create_sandbox() as first:
            first.write_file("/srv/project/main.py", "import os\nprint('copied')  # later: more\n")
            first.exec(PROJECT).check()

            clone = first.git_checkout("/srv/project", target_dir="code/project", depth=1)
            print("cloned", clone.branch, "to", clone.target_dir)
            for line in first.search("later", "code").lines:
                print(f"{line.path}:{line.line}: {line.text}")

            with first.read_archive("code") as archive:
                copied = archive.read()

        with client.create_sandbox() as second:
            second.write_archive(io.BytesIO(copied), "code")
            print(second.exec("python3 code/project/main.py").stdout.strip())
        events = [entry.event for entry in client.audit(sandbox=first.id)]
        print("first sandbox deleted:", "sandbox.destroy" in events)


if __name__ == "__main__":
    main()
