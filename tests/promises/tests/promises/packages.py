"""A package of each kind, made from nothing, and the index that its program asks: below the folder
that is named, as a town's web servers serve it."""
import base64, gzip, hashlib, io, json, os, subprocess, sys, tarfile, zipfile

folder = sys.argv[1]


def write(path, data):
    path = f"{folder}/www/{path}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


# pip: the index on one host, files on another, as the public one has it; and what is only built.
wheel = io.BytesIO()
with zipfile.ZipFile(wheel, "w") as files:
    files.writestr("tiny.py", "word = 'a wheel'\n")
    about = "tiny-1.0.dist-info"
    files.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    files.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    files.writestr(f"{about}/RECORD", f"tiny.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
digest = hashlib.sha256(wheel.getvalue()).hexdigest()
file = "tiny-1.0-py3-none-any.whl"
write(f"files.example/{file}", wheel.getvalue())
link = f'<a href="https://files.example/{file}#sha256={digest}">{file}</a>'
write("pypi.example/simple/tiny/index.html", f"<!DOCTYPE html><html><body>{link}</body></html>")

# npm: what a package is, and its archive.
archive = io.BytesIO()
with tarfile.open(fileobj=archive, mode="w:gz") as files:
    for name, text in [("package.json", json.dumps({"name": "tiny", "version": "1.0.0", "main": "index.js"})),
                       ("index.js", "module.exports = 'a module'\n")]:
        one = tarfile.TarInfo(f"package/{name}")
        one.size = len(text)
        files.addfile(one, io.BytesIO(text.encode()))
sums = {"shasum": hashlib.sha1(archive.getvalue()).hexdigest(),
        "integrity": "sha512-" + base64.b64encode(hashlib.sha512(archive.getvalue()).digest()).decode()}
version = {"name": "tiny", "version": "1.0.0", "main": "index.js",
           "dist": {"tarball": "https://npm.example/tiny/-/tiny-1.0.0.tgz", **sums}}
about = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
write("npm.example/tiny/index.html", json.dumps(about))
write("npm.example/tiny/-/tiny-1.0.0.tgz", archive.getvalue())

# git: a repository with two commits, served by git's own program.
def git(*words, cwd=None):
    own = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example"}
    subprocess.run(["git", *words], cwd=cwd, check=True, env=dict(os.environ, **own), stdout=subprocess.DEVNULL)
work = f"{folder}/work"
git("init", "-q", "-b", "main", work)
for number in (1, 2):
    with open(f"{work}/text", "w") as out:
        out.write(f"commit {number}\n" * 1000)
    git("add", ".", cwd=work)
    git("commit", "-q", "-m", f"{number}", cwd=work)
os.makedirs(f"{folder}/git")
git("clone", "-q", "--bare", work, f"{folder}/git/tiny.git")

# apt: a package that another one needs, in a repository that is flat.
def deb(name, needs, files, after=""):
    top = f"{folder}/deb/{name}"
    os.makedirs(f"{top}/DEBIAN")
    control = f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example>\nDescription: small\n"
    with open(f"{top}/DEBIAN/control", "w") as out:
        out.write(control + (f"Depends: {needs}\n" if needs else ""))
    if after:
        with open(f"{top}/DEBIAN/postinst", "w") as out:
            out.write("#!/bin/sh\nset -e\n" + after)
        os.chmod(f"{top}/DEBIAN/postinst", 0o755)
    for path, text in files.items():
        os.makedirs(os.path.dirname(f"{top}/{path}"), exist_ok=True)
        with open(f"{top}/{path}", "w") as out:
            out.write(text)
        os.chmod(f"{top}/{path}", 0o755)
    at = f"{folder}/www/deb.example/{name}_1.0_all.deb"
    os.makedirs(os.path.dirname(at), exist_ok=True)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", top, at], check=True, stdout=subprocess.DEVNULL)
    data = open(at, "rb").read()
    return (control + (f"Depends: {needs}\n" if needs else "") + f"Filename: ./{name}_1.0_all.deb\nSize: {len(data)}\n"
            f"SHA256: {hashlib.sha256(data).hexdigest()}\n\n")
packages = deb("tiny-words", "", {"usr/share/tiny/words": "a package\n"})
packages += deb("tiny", "tiny-words, bash", {"usr/bin/tiny": "#!/bin/sh\ncat /usr/share/tiny/words /var/lib/tiny\n"},
                "echo set up >/var/lib/tiny\n")
write("deb.example/Packages", packages)
write("deb.example/Packages.gz", gzip.compress(packages.encode()))
