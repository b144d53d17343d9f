"""Changes the files of a sandbox from outside of it, one system call at a time, and records each change.

    recorder.py write PID LOG SEED PAUSE   change files until killed
    recorder.py dump                       print the files below the recorded directories as JSON

`write` enters the root directory and the control groups of the process PID, so that it stands still
with the sandbox, and takes the user id of its root. LOG on the host gets a line of JSON before each
change: what stands in line N is made before line N + 1 is written.
"""

import json
import os
import random
import sys
import time

# One in each of the directories that a sandbox stores apart.
TREES = ["workspace/rec", "opt/rec", "usr/local/rec"]
FILES_MAX = 20
SIZE_MAX = 3000
# Renaming a directory of a lower layer is refused (EXDEV); a workspace has no layers.
DIRECTORIES = TREES[:1]


def enter(pid):
    for line in open(f"/proc/{pid}/cgroup"):
        _, names, path = line.rstrip("\n").split(":", 2)
        for base in [f"/sys/fs/cgroup/{names}", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"]:
            procs = f"{base}{path}/cgroup.procs"
            if path != "/" and os.path.exists(procs):
                open(procs, "w").write(str(os.getpid()))
                break
    root = int(open(f"/proc/{pid}/uid_map").readline().split()[1])
    os.chdir(f"/proc/{pid}/root")
    os.setgroups([])
    os.setresgid(root, root, root)
    os.setresuid(root, root, root)
    os.umask(0)


class Recorder:
    def __init__(self, log, seed):
        self.log = log
        self.random = random.Random(seed)
        self.number = 0
        # Inode numbers of our own by path, and sizes by inode.
        self.files = {tree: {} for tree in TREES}
        self.sizes = {}
        self.links = {tree: [] for tree in TREES}
        self.directories = {tree: [] for tree in DIRECTORIES}

    def name(self, tree, kind):
        self.number += 1
        folder = tree
        if kind != "d" and self.directories.get(tree) and self.random.random() < 0.4:
            folder = self.random.choice(self.directories[tree])
        return f"{folder}/{kind}{self.number}"

    def change(self, *words):
        """Records a change, and makes it."""
        os.write(self.log, json.dumps(words).encode() + b"\n")
        kind, path, *rest = words
        if kind == "create":
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        elif kind == "write":
            file = os.open(path, os.O_WRONLY)
            assert os.pwrite(file, rest[1].encode(), rest[0]) == len(rest[1])
            os.close(file)
        elif kind == "truncate":
            os.truncate(path, rest[0])
        elif kind == "chmod":
            os.chmod(path, rest[0])
        else:
            getattr(os, kind)(path, *rest)

    def step(self, tree):
        files, links = self.files[tree], self.links[tree]
        kind = self.random.choice(["write"] * 5 + ["create", "create", "rename", "rename", "replace", "unlink", "link",
                                                   "symlink", "truncate", "chmod", "mkdir", "rmdir", "move"])
        if kind == "create" or not files:
            if len(files) >= FILES_MAX:
                return self.remove(tree)
            path = self.name(tree, "f")
            self.change("create", path)
            files[path] = self.number
            self.sizes[self.number] = 0
            return None
        path = self.random.choice(list(files))
        inode = files[path]
        if kind == "rename":
            to = self.name(tree, "f")
            self.change("rename", path, to)
            files[to] = files.pop(path)
        elif kind == "replace":
            to = self.random.choice(list(files))
            # A rename between two names of one file does nothing.
            if files[to] != inode:
                self.change("rename", path, to)
                files[to] = files.pop(path)
        elif kind == "unlink":
            self.remove(tree)
        elif kind == "link" and len(files) < FILES_MAX:
            to = self.name(tree, "h")
            self.change("link", path, to)
            files[to] = inode
        elif kind == "symlink":
            if len(links) < 4:
                links.append(self.name(tree, "s"))
                self.change("symlink", f"../{self.number}", links[-1])
            else:
                self.change("unlink", links.pop(0))
        elif kind == "truncate" or self.sizes[inode] > SIZE_MAX:
            self.sizes[inode] = self.random.randrange(self.sizes[inode] + 1)
            self.change("truncate", path, self.sizes[inode])
        elif kind == "chmod":
            self.change("chmod", path, self.random.choice([0o600, 0o640, 0o755, 0o711]))
        elif kind in ("mkdir", "rmdir", "move") and tree in self.directories:
            self.directory(tree, kind)
        else:
            size = self.sizes[inode]
            self.number += 1
            text = f"{self.number} " * self.random.randrange(1, 40)
            at = self.random.choice([size, self.random.randrange(size + 1)])
            self.change("write", path, at, text)
            self.sizes[inode] = max(size, at + len(text))
        return None

    def remove(self, tree):
        path = self.random.choice(list(self.files[tree]))
        self.change("unlink", path)
        del self.files[tree][path]

    def directory(self, tree, kind):
        own = self.directories[tree]
        if kind == "mkdir" and len(own) < 5:
            path = self.name(tree, "d")
            self.change("mkdir", path)
            own.append(path)
        elif own:
            path = self.random.choice(own)
            inside = [one for one in [*self.files[tree], *self.links[tree]] if one.startswith(path + "/")]
            if kind == "rmdir" and not inside:
                self.change("rmdir", path)
                own.remove(path)
            elif kind == "move":
                to = self.name(tree, "d")
                self.change("rename", path, to)
                moved = lambda one: to + one[len(path):] if one.startswith(path + "/") else one
                self.files[tree] = {moved(one): inode for one, inode in self.files[tree].items()}
                self.links[tree] = [moved(one) for one in self.links[tree]]
                own[own.index(path)] = to


def write(pid, log, seed, pause):
    log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    enter(pid)
    recorder = Recorder(log, seed)
    while True:
        for tree in TREES:
            recorder.step(tree)
            time.sleep(pause)


def dump():
    found = {}
    for tree in TREES:
        for folder, folders, files in os.walk("/" + tree):
            for name in folders + files:
                path = os.path.join(folder, name)
                try:
                    status = os.lstat(path)
                    if os.path.islink(path):
                        text = os.readlink(path)
                    else:
                        text = "" if os.path.isdir(path) else open(path).read()
                except FileNotFoundError:
                    continue
                links = 1 if os.path.isdir(path) else status.st_nlink
                found[path[1:]] = [oct(status.st_mode), links, text]
    print(json.dumps(found))


if sys.argv[1] == "write":
    write(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
else:
    dump()
