"""Builds templates with the methods of E2B's public Python client."""

import asyncio
import os
import pathlib
import sys
import tempfile

from e2b import (
    AsyncSandbox,
    AsyncTemplate,
    BuildException,
    Sandbox,
    Template,
    wait_for_file,
    wait_for_port,
)
from e2b.exceptions import TemplateException


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"it was not refused with {kind}")


def make_context(home):
    root = pathlib.Path(home)
    (root / "src/sub").mkdir(parents=True)
    (root / "src/a.txt").write_text("a\n")
    (root / "src/sub/b.txt").write_text("b\n")
    (root / "src/link.txt").symlink_to("a.txt")
    (root / "src/skipped.log").write_text("no\n")
    (root / "one.sh").write_text("echo one\n")
    (root / ".dockerignore").write_text("*.log\n**/*.log\n")


def whole(home):
    """A template with every kind of step."""
    return (
        Template(file_context_path=home)
        .from_base_image()
        .run_cmd("echo $HOME; pwd")
        .copy("src", "tree")
        .copy("src/*", "/opt/flat/")
        .copy("one.sh", "/opt/bin/one", mode=0o755, user="root")
        .copy_items([{"src": "src/a.txt", "dest": "/opt/c.txt"}])
        .make_dir("/opt/made", mode=0o750)
        .make_symlink("/opt/c.txt", "/opt/d.txt")
        .rename("/opt/made", "/opt/kept")
        .run_cmd(["touch /opt/gone", "touch /opt/stays"], user="root")
        .remove("/opt/gone")
        .set_envs({"GREETING": "hello", "BOTH": "$GREETING"})
        .set_envs({"PATH": "/opt/bin:$PATH", "BOTH": "${GREETING} twice"})
        .set_workdir("/srv/app")
        .run_cmd("pwd > where; one > said; echo problem >&2")
        .set_start_cmd(
            "python3 -m http.server 8123 --bind 127.0.0.1", wait_for_port(8123)
        )
    )


def built(template, name, **options):
    """Builds a template, and returns what the client learned and the lines of the log."""
    lines = []
    info = Template.build(
        template, name, on_build_logs=lambda e: lines.append((e.level, e.message)), **options
    )
    return info, lines


def every_method(home):
    info, lines = built(whole(home), "py-whole:v1", tags=["stable"])
    assert (info.name, info.tags) == ("py-whole:v1", ["v1", "stable"]), info
    texts = [text for _, text in lines]
    assert "/home/user" in texts and ("warn", "problem") in lines, lines
    assert any("RUN echo $HOME; pwd" in text for text in texts), texts
    assert not any(text.startswith("CACHED") for text in texts), texts
    with Sandbox.create("py-whole:stable", timeout=120) as sandbox:
        run = lambda line, **more: sandbox.commands.run(line, **more).stdout
        assert run("pwd") == "/srv/app\n"
        assert run("cat where said") == "/srv/app\none\n"
        assert run("echo $GREETING $BOTH; /opt/bin/one") == "hello hello twice\none\n"
        assert run("ls /home/user/tree /home/user/tree/sub") == (
            "/home/user/tree:\na.txt\nlink.txt\nsub\n\n/home/user/tree/sub:\nb.txt\n"
        )
        assert run("readlink /home/user/tree/link.txt /opt/d.txt") == "a.txt\n/opt/c.txt\n"
        assert run("ls /opt/flat") == "a.txt\nb.txt\nlink.txt\n"
        assert run("stat -c %a /opt/bin/one /opt/kept") == "755\n750\n"
        assert run("ls /opt/stays; test ! -e /opt/gone") == "/opt/stays\n"
        assert run("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8123/") == "200"
        assert any(one.tag == "start" for one in sandbox.commands.list())


def cache(home):
    _, lines = built(whole(home), "py-whole:v2")
    cached = [text for _, text in lines if text.startswith("CACHED")]
    assert len(cached) == 14, lines
    _, lines = built(whole(home), "py-whole:v3", skip_cache=True)
    assert not any(text.startswith("CACHED") for _, text in lines), lines
    pathlib.Path(home, "src/a.txt").write_text("changed\n")
    _, lines = built(whole(home), "py-whole:v4")
    assert [text.split("]")[0] for _, text in lines if text.startswith("CACHED")] == ["CACHED [1/14"]
    forced = Template().from_base_image().run_cmd("true").skip_cache().run_cmd("date")
    for _ in range(2):
        _, lines = built(forced, "py-forced")
    assert [text for _, text in lines if "RUN" in text] == [
        "CACHED [1/2] RUN true",
        "[2/2] RUN date",
    ], lines


def failures(home):
    lines = []
    failing = Template().from_base_image().run_cmd("true").run_cmd("echo why >&2; exit 3")
    error = refused(
        BuildException,
        lambda: Template.build(failing, "py-bad", on_build_logs=lambda e: lines.append(e.message)),
    )
    assert "exit status 3" in str(error) and "why" in str(error), error
    assert "why" in lines, lines
    assert not Template.exists("py-bad")
    refused(BuildException, lambda: built(Template().from_template("py-none"), "py-bad"))
    unknown = Template().from_base_image().run_cmd("whoami", user="root123")
    error = refused(BuildException, lambda: built(unknown, "py-bad"))
    assert "invalid username: 'root123'" in str(error), error
    private = Template().from_image("registry.example/x", username="u", password="secret")
    error = refused(BuildException, lambda: built(private, "py-bad"))
    assert "fromImageRegistry" in str(error) and "secret" not in str(error), error
    refused(BuildException, lambda: built(Template().from_base_image(), "Not A Name"))
    slow = Template().from_base_image().set_start_cmd("sleep 1000", wait_for_file("/never"))
    built(slow, "py-never-ready")
    error = refused(Exception, lambda: Sandbox.create("py-never-ready", request_timeout=120))
    assert "not ready" in str(error), error


def dockerfile(home):
    text = """FROM e2bdev/base
WORKDIR /app
COPY --chown=root src/a.txt one.sh /app/
ENV A=1 B=2
RUN cat a.txt \\
  one.sh > both
USER root
"""
    pathlib.Path(home, "src/a.txt").write_text("a\n")
    built(Template(file_context_path=home).from_dockerfile(text), "py-dockerfile")
    with Sandbox.create("py-dockerfile") as sandbox:
        assert sandbox.commands.run("pwd; cat both; echo $A$B $HOME").stdout == (
            "/app\na\necho one\n12 /root\n"
        )
        sandbox.files.write("relative", "x")
        assert sandbox.files.read("/root/relative") == "x"


def tags_and_names(home):
    assert Template.exists("py-whole") and Template.exists("base")
    assert not Template.exists("py-unknown")
    assigned = Template.assign_tags("py-whole:v1", ["production", "default"])
    assert assigned.tags == ["production", "default"], assigned
    tags = {one.tag: one.build_id for one in Template.get_tags("py-whole")}
    assert tags["production"] == tags["v1"] == assigned.build_id == tags["latest"], tags
    assert tags["v4"] != tags["v1"], tags
    Template.remove_tags("py-whole", ["production", "stable"])
    assert "production" not in {one.tag for one in Template.get_tags("py-whole")}
    refused(TemplateException, lambda: Template.remove_tags("py-whole", "production"))
    refused(Exception, lambda: Template.assign_tags("py-whole:v1", ":bad"))
    refused(TemplateException, lambda: Template.get_tags("py-unknown"))
    derived = Template().from_template("py-whole:v1").run_cmd("pwd; echo $GREETING")
    _, lines = built(derived, "py-derived")
    texts = [text for _, text in lines]
    assert "/srv/app" in texts and "hello" in texts, texts


def background():
    slow = Template().from_base_image().skip_cache().run_cmd("sleep 3")
    info = Template.build_in_background(slow, "py-slow:v1")
    status = Template.get_build_status(info)
    assert status.status.value == "building", status
    assert (status.template_id, status.build_id) == (info.template_id, info.build_id), status


async def asynchronous(home):
    template = AsyncTemplate(file_context_path=home).from_base_image()
    template = template.copy("one.sh", "/opt/one.sh").run_cmd("sh /opt/one.sh > /opt/said")
    await AsyncTemplate.build(template, "py-async:1")
    assert await AsyncTemplate.exists("py-async:1")
    sandbox = await AsyncSandbox.create("py-async:1")
    assert (await sandbox.commands.run("cat /opt/said; pwd")).stdout == "one\n/home/user\n"
    await sandbox.kill()
    bad = AsyncTemplate().from_base_image().run_cmd("exit 9")
    try:
        await AsyncTemplate.build(bad, "py-async:2")
    except BuildException as error:
        assert "exit status 9" in str(error), error
    else:
        raise AssertionError("it was built")


with tempfile.TemporaryDirectory() as home:
    make_context(home)
    every_method(home)
    cache(home)
    tags_and_names(home)
    dockerfile(home)
    failures(home)
    background()
    asyncio.run(asynchronous(home))
print("all built")
# A thread of the client's HTTP library that takes the interpreter's lock while the interpreter ends aborts the
# process in some runs, with all calls answered. The end of the interpreter is not what is tested here.
sys.stdout.flush()
os._exit(0)
