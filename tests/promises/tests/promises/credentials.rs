//! Credentials of a sandbox: they reach their hosts and appear nowhere inside. Each test has a
//! simulated network, whose host trusts a certificate authority that no sandbox trusts.

use isolet_kit::image::{Image, Layer, busybox};
use isolet_kit::net::{PUBLIC, World, run};
use isolet_kit::tls::{Hosts, own_mounts};
use isolet_kit::{Http, Options, SOON, Sandbox, Server, Value, json, process, wait_until};

/// The secret value, in halves, so that a search does not find itself.
const VALUE: [&str; 2] = ["canary-58c1", "e07d-test"];
const API: &str = "api.example";
const OTHER: &str = "other.example";

/// A server in a simulated network whose names lead to hosts with TLS.
fn server(world: &World) -> (Server, Hosts) {
    server_with(world, Options::new())
}

fn server_with(world: &World, options: Options) -> (Server, Hosts) {
    let config = format!("[network]\nresolvers = [\"{PUBLIC}:53\"]\n");
    let server = options.env("RUST_LOG", "debug").config(&config).start();
    let hosts = Hosts::new(world, &server, &[API, OTHER]);
    (server, hosts)
}

fn world() -> World {
    own_mounts();
    World::new()
}

fn secret() -> String {
    VALUE.concat()
}

fn bearer() -> String {
    format!("Bearer {}", secret())
}

/// The credential that most tests use.
fn header() -> Value {
    json!({"host": API, "header": "Authorization", "value": bearer()})
}

fn spec(network: Value) -> Value {
    json!({"network": network, "credentials": [header()]})
}

fn allowed() -> Value {
    json!({"allow": [API, OTHER]})
}

/// Sends a request to a host and returns what the host received.
#[track_caller]
fn asks(sandbox: &Sandbox, hosts: &mut Hosts, command: &str) -> Value {
    let reply = sandbox.exec(command);
    assert_eq!(reply["exit_code"], 0, "{command}: {reply}\n{}", state(sandbox));
    hosts.asked()
}

/// The state of the sandbox, for assertion messages.
fn state(sandbox: &Sandbox) -> Value {
    sandbox.http.get(&sandbox.path("/network")).json()
}

fn curl(host: &str) -> String {
    format!("curl -sS -m 60 https://{host}:8443/")
}

#[track_caller]
fn has_it(sandbox: &Sandbox, hosts: &mut Hosts) {
    let asked = asks(sandbox, hosts, &curl(API));
    assert_eq!(asked["headers"]["authorization"], bearer(), "{asked}");
}

/// Checks that a sandbox without credentials speaks with the host directly, whose certificate it
/// does not trust.
#[track_caller]
fn has_nothing(sandbox: &Sandbox, hosts: &mut Hosts) {
    let strange = sandbox.exec(&curl(API));
    assert_eq!(strange["exit_code"], 60, "{strange}");
    let asked = asks(sandbox, hosts, &format!("{} -k", curl(API)));
    assert!(!asked.to_string().contains(VALUE[0]), "{asked}");
}

/// Everything that the server has written or answers, except the file that stores the values.
fn outside(server: &Server, sandbox: &Sandbox) -> Vec<(String, Vec<u8>)> {
    let mut all = vec![("log".to_owned(), server.log().into_bytes())];
    let mut folders = vec![server.data()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() && path != server.data().join("credentials") {
                folders.push(path);
            } else if kind.is_file() {
                all.push((path.display().to_string(), std::fs::read(&path).unwrap_or_default()));
            }
        }
    }
    for path in [
        sandbox.path(""),
        sandbox.path("/network"),
        sandbox.path("/sessions"),
        sandbox.path("/processes"),
        sandbox.path("/files/?tar=1"),
        sandbox.path("/files?path=/etc/isolet"),
        format!("/v1/runs/{}/audit", sandbox.id),
        "/v1/sandboxes".to_owned(),
        "/v1/runs".to_owned(),
        "/v1/runs/history".to_owned(),
        "/v1/audit".to_owned(),
        "/v1/network-profiles".to_owned(),
        "/v1/openapi.json".to_owned(),
    ] {
        let reply = server.http().get(&path).expect(200);
        all.push((path, reply.text().into_bytes()));
    }
    for args in
        [&["network", &sandbox.id][..], &["ls", "--json"], &["network", &sandbox.id, "--json"]]
    {
        let output = server.command(args);
        all.push((args.join(" "), [output.stdout, output.stderr].concat()));
    }
    all
}

/// Checks that the value appears nowhere inside, and outside only where it is stored.
#[track_caller]
fn is_nowhere(server: &Server, sandbox: &Sandbox) {
    assert_eq!(sandbox.search(VALUE), [""; 0]);
    let has = |bytes: &[u8]| bytes.windows(VALUE[0].len()).any(|part| part == VALUE[0].as_bytes());
    let found = outside(server, sandbox).into_iter().filter(|(_, bytes)| has(bytes));
    let found: Vec<String> = found.map(|(place, _)| place).collect();
    assert_eq!(found, [""; 0]);
}

/// The events of a stream up to the one that `work` causes.
fn events(sandbox: &Sandbox, work: impl FnOnce()) -> String {
    let mut stream =
        sandbox.http.try_open("GET", &sandbox.path("/events"), None).expect("an answer");
    work();
    let mut said = String::new();
    while let Some(event) = stream.event() {
        said.push_str(&event.data);
        if event.name == "network_changed" {
            break;
        }
    }
    said
}

/// Promises: Q20.
#[test]
fn a_credential_reaches_its_host_and_is_nowhere_inside() {
    let world = world();
    let (server, mut hosts) = server(&world);
    let mut all = spec(allowed());
    let word = json!({"host": "*.example", "placeholder": "ISOLET_KEY", "value": secret()});
    all["credentials"].as_array_mut().expect("a list").push(word);
    let sandbox = server.sandbox_with(&all);
    for command in [
        curl(API),
        format!("wget -q -O - https://{API}:8443/"),
        format!(
            "python3 -c \"import urllib.request as u; u.urlopen('https://{API}:8443/', timeout=60).read()\""
        ),
        format!("node -e \"fetch('https://{API}:8443/').then(it => it.text())\""),
    ] {
        let asked = asks(&sandbox, &mut hosts, &command);
        assert_eq!(asked["headers"]["authorization"], bearer(), "{command}: {asked}");
    }
    // The header that the client sent is replaced.
    let own = format!("{} -H 'Authorization: Bearer mine'", curl(API));
    assert_eq!(asks(&sandbox, &mut hosts, &own)["headers"]["authorization"], bearer());
    let word = format!("{} -H 'X-Key: a ISOLET_KEY'", curl(OTHER));
    let asked = asks(&sandbox, &mut hosts, &word);
    assert_eq!(asked["headers"]["x-key"], format!("a {}", secret()), "{asked}");
    assert!(asked["headers"]["authorization"].is_null(), "{asked}");
    // Another host and plain HTTP get nothing, even where a host redirects to them.
    for to in [format!("https://{OTHER}:8443/"), format!("http://{API}:8081/")] {
        let command = format!("curl -sS -m 60 -L https://{API}:8443/to/{to}");
        let first = asks(&sandbox, &mut hosts, &command);
        assert_eq!(first["headers"]["authorization"], bearer(), "{first}");
        let second = hosts.asked();
        assert!(!second["headers"].to_string().contains(VALUE[0]), "{to}: {second}");
    }
    let strangers = server.sandbox_with(&json!({"network": allowed()}));
    has_nothing(&strangers, &mut hosts);
    // A search that finds nothing would prove nothing without a positive case.
    let value = secret();
    sandbox.exec(&format!("echo {value} >/workspace/own; A={value} setsid sleep 1000 &"));
    let found = sandbox.search(VALUE);
    assert!(found.iter().any(|place| place == "/workspace/own"), "{found:?}");
    assert!(found.iter().any(|place| place.ends_with("/environ")), "{found:?}");
    assert!(found.iter().any(|place| place.ends_with("/mem")), "{found:?}");
    sandbox.exec("rm /workspace/own; pkill sleep");
    is_nowhere(&server, &sandbox);
    for (body, field) in [
        (json!({"credentials_add": secret()}), "credentials_add"),
        (json!({"credentials_add": [{"host": secret(), "value": secret()}]}), "credentials_add[0]"),
        (json!({"credentials_add": [{"host": API, secret(): "x"}]}), "credentials_add[0]"),
        (
            json!({"credentials_remove": [{"host": API, "value": secret()}]}),
            "credentials_remove[0]",
        ),
    ] {
        let failure = sandbox.http.patch(&sandbox.path("/network"), &body).expect(400).text();
        assert!(failure.contains(field) && !failure.contains(VALUE[0]), "{failure}");
    }
    let said = events(&sandbox, || {
        let more = json!({"host": OTHER, "header": "X-Other", "value": secret()});
        let body = json!({"credentials_add": [more]});
        let reply = sandbox.http.patch(&sandbox.path("/network"), &body).expect(200);
        assert!(!reply.text().contains(VALUE[0]), "{}", reply.text());
        let view = json!({"host": OTHER, "header": "x-other", "allowed": true});
        assert_eq!(reply.json()["credentials"][2], view);
    });
    assert!(said.contains("rules") && !said.contains(VALUE[0]), "{said}");
    asleep(&sandbox);
    has_it(&sandbox, &mut hosts);
    is_nowhere(&server, &sandbox);
    let stored = server.data().join("credentials");
    assert_eq!(std::fs::read_dir(&stored).expect("there").count(), 1);
    sandbox.delete();
    assert_eq!(
        std::fs::read_dir(&stored).expect("there").count(),
        0,
        "the value was deleted with its sandbox"
    );
}

fn asleep(sandbox: &Sandbox) {
    wait_until("it sleeps", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
}

/// Processes of this test's server that run this program.
fn those(server: &Server, program: &str) -> Vec<i32> {
    process::all()
        .into_iter()
        .filter(|pid| program.starts_with(&process::name(*pid)))
        .filter(|pid| {
            let mut above = Some(*pid);
            while let Some(pid) = above.filter(|pid| *pid > 1) {
                if process::arguments(pid).contains(&server.data().display().to_string()) {
                    return true;
                }
                above = process::parent(pid);
            }
            false
        })
        .collect()
}

fn certificate(sandbox: &Sandbox) -> String {
    sandbox.says("cat /etc/isolet/credentials.pem")
}

/// Promises: Q21.
#[test]
fn a_credential_works_again_after_every_restart_until_it_is_withdrawn() {
    let world = world();
    let (mut server, mut hosts) = server(&world);
    let sandbox = server.sandbox_with(&spec(allowed()));
    has_it(&sandbox, &mut hosts);
    let first = certificate(&sandbox);
    server.kill();
    server.launch();
    server.wait_until_ready();
    has_it(&sandbox, &mut hosts);
    let proxies = those(&server, "isolet-egress-proxy");
    assert_eq!(proxies.len(), 1, "{proxies:?}");
    process::kill(proxies[0]);
    wait_until("another authority is trusted", SOON, || {
        let now = certificate(&sandbox);
        (now.contains("BEGIN CERTIFICATE") && now != first).then_some(())
    });
    has_it(&sandbox, &mut hosts);
    // Programs that read no environment variables use the system's own bundle.
    let asked = asks(&sandbox, &mut hosts, &format!("env -i {}", curl(API)));
    assert_eq!(asked["headers"]["authorization"], bearer(), "{asked}");
    let second = certificate(&sandbox);
    let owner = those(&server, "isolet-launcher");
    let owner = owner.into_iter().find(|pid| process::arguments(*pid).contains("--veth"));
    process::kill(owner.expect("the veth manager runs"));
    wait_until("it has a veth pair and its credentials again", SOON, || {
        let now = certificate(&sandbox);
        (now.contains("BEGIN CERTIFICATE") && now != second).then_some(())
    });
    has_it(&sandbox, &mut hosts);
    asleep(&sandbox);
    server.restart();
    has_it(&sandbox, &mut hosts);
    // Nobody inside can change which authority is trusted.
    assert_ne!(sandbox.exec("rm -f /etc/isolet/credentials.pem")["exit_code"], 0);
    let gone = json!({"credentials_remove": [{"host": API}]});
    let reply = sandbox.http.patch(&sandbox.path("/network"), &gone).expect(200).json();
    assert!(reply["credentials"].is_null(), "{reply}");
    has_nothing(&sandbox, &mut hosts);
    let left =
        sandbox.says("ls /etc/isolet; grep -c isolet /etc/ssl/certs/ca-certificates.crt; true");
    assert_eq!(left.trim(), "0");
}

/// Promises: Q22.
#[test]
fn a_credential_works_with_every_kind_of_rule_and_the_rules_decide() {
    let world = world();
    let (server, mut hosts) = server(&world);
    let patch = |sandbox: &Sandbox, body: &Value| {
        sandbox.http.patch(&sandbox.path("/network"), body).expect(200).json()
    };
    // The credential is added while the sandbox runs, first with an open network, then with rules
    // by address alone.
    let sandbox = server.sandbox_with(&json!({"network": "open"}));
    has_nothing(&sandbox, &mut hosts);
    patch(&sandbox, &json!({"credentials_add": [header()]}));
    has_it(&sandbox, &mut hosts);
    let other = sandbox.exec(&format!("timeout 60 cat </dev/tcp/{PUBLIC}/443"));
    assert_eq!(other["exit_code"], 0, "the other credential still works: {other}");
    let address = format!("{PUBLIC}/32");
    patch(&sandbox, &json!({"network": {"allow": [address]}}));
    let pinned = format!("{} --resolve {API}:8443:{PUBLIC}", curl(API));
    assert_eq!(asks(&sandbox, &mut hosts, &pinned)["headers"]["authorization"], bearer());
    let reply = patch(&sandbox, &json!({"network": {"allow": [OTHER]}}));
    assert_eq!(reply["credentials"][0]["allowed"], false, "{reply}");
    let refused = sandbox.exec(&curl(API));
    assert_ne!(refused["exit_code"], 0, "{refused}");
    assert_eq!(refused["denied"][0]["host"], API, "{refused}");
    // Plain HTTP gets the credential only where its port is named, and never at an address that the
    // sandbox itself claims for the name.
    let plain = json!({"host": format!("{API}:8081"), "header": "X-Plain", "value": secret()});
    patch(&sandbox, &json!({"network": "open", "credentials_add": [plain]}));
    let asked = asks(&sandbox, &mut hosts, &format!("curl -sS -m 60 http://{API}:8081/"));
    assert_eq!(asked["headers"]["x-plain"], secret(), "{asked}");
    let false_one = isolet_kit::net::OTHER;
    let command = format!("curl -sS -m 60 --resolve {API}:8081:{false_one} http://{API}:8081/");
    let asked = asks(&sandbox, &mut hosts, &command);
    assert_eq!(asked["headers"]["x-plain"], secret(), "the host got the credential: {asked}");
    assert_eq!(asked["at"], PUBLIC.to_string(), "{asked}");
    // A sleeping sandbox gets it when it wakes; an ephemeral one keeps it, too.
    let ephemeral = server.sandbox_with(&json!({"network": allowed(), "persistent": false}));
    asleep(&ephemeral);
    patch(&ephemeral, &json!({"credentials_add": [header()]}));
    has_it(&ephemeral, &mut hosts);
    asleep(&ephemeral);
    has_it(&ephemeral, &mut hosts);
}

/// Promises: Q23.
#[test]
fn the_command_line_and_a_dialect_set_credentials_and_no_tenant_reads_another() {
    let world = world();
    let (mut server, mut hosts) = server(&world);
    let file = server.data().with_file_name("value");
    std::fs::write(&file, format!("{}\n", bearer())).expect("written");
    let credential = format!("{API}:Authorization=@{}", file.display());
    let made = server.command(&["create", "demo", "--allow", API, "--credential", &credential]);
    assert!(made.status.success(), "{made:?}");
    has_it(&server.named("demo"), &mut hosts);
    let literal = format!("{API}:Authorization={}", bearer());
    let refused = server.command(&["create", "no", "--credential", &literal]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("@FILE"), "{said}");
    let shown = server.command(&["network", "demo"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(&format!("inject  {API} authorization\n")), "{shown}");
    let gone = server.command(&["network", "demo", "--credential-remove", API]);
    assert!(gone.status.success(), "{gone:?}");
    has_nothing(&server.named("demo"), &mut hosts);
    let run = json!({"image": "host", "network": {"allow": [API]}, "credentials": {API: bearer()}});
    let run = server.http().post("/v1/runs", &run).expect(201).json();
    has_it(&server.named(run["id"].as_str().expect("an id")), &mut hosts);
    let key = server.add_key(&["--tenant", "other"]);
    let theirs = Http::new(server.port(), Some(&key));
    theirs.get("/v1/sandboxes/demo/network").expect(404);
}

/// The host's curl with the libraries that it is linked with.
fn with_curl() -> Layer {
    let said = run("ldd", "/usr/bin/curl");
    let files = said.split_whitespace().filter(|word| word.starts_with('/'));
    files.chain(["/usr/bin/curl"]).fold(busybox(), |layer, path| {
        let inside = path.trim_start_matches('/');
        let folder = inside.rsplit_once('/').map_or("", |(folder, _)| folder);
        let bytes = std::fs::read(path).expect("the host's curl runs");
        layer.directory(folder).file(inside, &bytes)
    })
}

/// Promises: Q21.
#[test]
fn a_credential_works_in_images_with_and_without_a_ca_bundle() {
    let world = world();
    let (server, mut hosts) = server(&world);
    let base = with_curl().bytes();
    let users = Image::new(std::slice::from_ref(&base), &json!({"User": "1000:1000"}));
    let bundle = std::fs::read("/etc/ssl/certs/ca-certificates.crt").expect("the host has one");
    let bundle = Layer::new()
        .directory("etc/ssl/certs")
        .file("etc/ssl/certs/ca-certificates.crt", &bundle)
        .bytes();
    let whole = Image::new(&[base, bundle], &json!({}));
    let made = |name: &str, image: &Image| {
        let path = format!("/v1/images/import?name={name}");
        server.http().send("POST", &path, Some(&image.layout())).expect(201);
        let mut spec = spec(allowed());
        spec["image"] = json!(name);
        server.sandbox_with(&spec)
    };
    let ask = format!("{} --resolve {API}:8443:{PUBLIC}", curl(API));
    // This image trusts nothing, and nobody may write where authorities would be looked up.
    let bare = made("local/bare:1", &users);
    assert_eq!(bare.says("id -u").trim(), "1000");
    assert_eq!(asks(&bare, &mut hosts, &ask)["headers"]["authorization"], bearer());
    let whole = made("local/whole:1", &whole);
    for ask in [ask.clone(), format!("env -i /usr/bin/{ask}")] {
        let asked = asks(&whole, &mut hosts, &ask);
        assert_eq!(asked["headers"]["authorization"], bearer(), "{ask}");
    }
    // A session that sees a part of the workspace trusts the authority, too.
    let scoped = json!({"id": "part", "file_access": {"read": ["a"], "write": ["b"]}});
    whole.exec("mkdir a");
    whole.post("/sessions", &scoped).expect(201);
    let reply = whole.command("part", &ask);
    assert_eq!(reply["exit_code"], 0, "{reply}");
    assert_eq!(hosts.asked()["headers"]["authorization"], bearer());
    asleep(&bare);
    assert_eq!(asks(&bare, &mut hosts, &ask)["headers"]["authorization"], bearer());
}

/// Promises: Q21.
#[test]
fn a_sandbox_from_the_warm_pool_gets_its_credentials() {
    let world = world();
    let (server, mut hosts) = server_with(&world, Options::new().warm_pool(1).other_kinds(1));
    let first = server.sandbox_with(&spec(allowed()));
    has_it(&first, &mut hosts);
    server.delete_with_agent(&first);
    let waiting =
        wait_until("the warm pool holds one with a veth pair and a plain one", SOON, || {
            let agents = server.agents();
            (agents.len() == 2).then_some(agents)
        });
    let second = server.sandbox_with(&spec(allowed()));
    has_it(&second, &mut hosts);
    let again = server.sandbox_with(&json!({"network": allowed()}));
    has_nothing(&again, &mut hosts);
    let still = server.agents();
    assert!(waiting.iter().all(|pid| still.contains(pid)), "{waiting:?} in {still:?}");
}

/// Promises: SN31.
#[test]
fn forks_have_the_credentials_of_the_original_and_snapshots_have_none() {
    let world = world();
    let (mut server, mut hosts) = server(&world);
    let sandbox = server.sandbox_with(&spec(allowed()));
    has_it(&sandbox, &mut hosts);
    let reader = server.add_key(&["--read-only"]);
    let reader = server.client(Some(&reader));
    let refused = reader.post(&sandbox.path("/fork"), &json!({})).expect(403);
    assert_eq!(refused.error(), "read_only");
    let forked = sandbox.post("/fork", &json!({"count": 1})).expect(201).json();
    let fork = server.named(forked["forks"][0]["id"].as_str().expect("an id"));
    has_it(&fork, &mut hosts);
    assert!(fork.exec("true").get("lost").is_none(), "nothing is lost");
    // The fork keeps them when those of the original are removed.
    let remove = json!({"credentials_remove": [{"host": API}]});
    let point = sandbox.post("/snapshots", &json!({"name": "point"})).expect(201).json();
    assert_eq!(point["lost"], json!(["credentials"]), "{point}");
    let patch = sandbox.http.patch(&sandbox.path("/network"), &remove);
    assert_eq!(patch.status, 200, "{}", patch.text());
    has_nothing(&sandbox, &mut hosts);
    has_it(&fork, &mut hosts);
    // A snapshot says what is missing, and takes it from the create.
    let without = server.sandbox_with(&json!({"snapshot": "point"}));
    assert_eq!(without.exec("true")["lost"], json!(["credentials"]));
    has_nothing(&without, &mut hosts);
    let with = server.sandbox_with(&json!({"snapshot": "point", "credentials": [header()]}));
    assert!(with.exec("true").get("lost").is_none(), "nothing is lost");
    has_it(&with, &mut hosts);
    // A restore in place keeps the sandbox's own.
    let restored = with.post("/restore", &json!({"snapshot": "point"})).expect(200).json();
    assert_eq!(restored["lost"], json!([]), "{restored}");
    has_it(&with, &mut hosts);
    let restored = without.post("/restore", &json!({"snapshot": "point"})).expect(200).json();
    assert_eq!(restored["lost"], json!(["credentials"]), "{restored}");
    let stored = outside(&server, &sandbox);
    let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&secret());
    let found: Vec<_> = stored.iter().filter(|(_, bytes)| holds(bytes)).collect();
    assert!(
        found.is_empty(),
        "the value is in {:?}",
        found.iter().map(|(at, _)| at).collect::<Vec<_>>()
    );
}
