//! A test's server: started, killed, restarted, and cleaned up.

mod power;
mod running;

use crate::data_directory::{end_all, erase, helpers, share_image, test_directory};
use crate::{
    Http, Options, SOON, Sandbox, Traces, Value, free_port, https, json, process, traces,
    wait_until,
};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// The directory that holds the programs under test.
///
/// # Panics
/// When a program is missing, with the command that builds it.
#[must_use]
pub fn programs() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/programs");
    let at = std::env::var_os("ISOLET_PROGRAMS").map_or(own, PathBuf::from);
    for name in ["isolet", "isolet-launcher", "isolet-agent", "isolet-egress-proxy"] {
        let there = at.join(name).is_file();
        assert!(there, "{name} is not in {}: run `make programs`", at.display());
    }
    at
}

/// A running server, or one that was killed and can be started again.
#[derive(Debug)]
pub struct Server {
    folder: TempDir,
    child: Option<Child>,
    options: Options,
    /// Whether the data directory is a mount point.
    mounted: bool,
    port: u16,
    key: String,
    keys: Vec<String>,
}

impl Server {
    /// Starts a server with default options.
    #[must_use]
    pub fn start() -> Self {
        Self::with(Options::new())
    }

    /// Starts another server with the same options, on a data directory that `put` creates from
    /// this one's.
    ///
    /// # Panics
    /// When the server does not start.
    #[must_use]
    pub fn start_beside(&self, put: impl FnOnce(&Path, &Path)) -> Self {
        let mut other = Self::planned(self.options.clone());
        put(&self.data(), &other.data());
        other.launch();
        other
    }

    /// Prepares another server whose data directory is a bind mount of this one's, without starting
    /// it.
    ///
    /// # Panics
    /// When the mount fails.
    #[must_use]
    pub fn with_bind_mounted_data(&self) -> Self {
        let mut other = Self::planned(self.options.clone());
        fs::create_dir(other.data()).expect("it is new");
        rustix::mount::mount_bind(self.data(), other.data()).expect("it is mounted");
        other.mounted = true;
        other
    }

    fn planned(options: Options) -> Self {
        let folder = test_directory("test");
        let own = || format!("test-{}", folder.path().display().to_string().replace('/', "-"));
        let key = options.key.clone().unwrap_or_else(own);
        fs::write(folder.path().join("isolet.toml"), &options.config).expect("writes");
        if let Some(authority) = &options.authority {
            fs::write(folder.path().join("ca.pem"), authority).expect("writes");
        }
        let port = options.network.as_ref().map_or_else(free_port, |network| network.port);
        let mounted = options.disk_mib > 0 || options.overlay || options.loop_disk.is_some();
        Self { folder, child: None, options, mounted, port, key, keys: Vec::new() }
    }

    pub(crate) fn with(options: Options) -> Self {
        let mut server = Self::planned(options);
        let data = server.data();
        fs::create_dir(&data).expect("the data directory is new");
        if server.options.disk_mib > 0 {
            mount(&data, server.options.disk_mib);
        }
        if let Some(disk) = &server.options.loop_disk {
            disk.mount(&server.disk_image(), &data);
        }
        if server.options.overlay {
            mount_overlay(&data);
        }
        let first = share_image(&server.options.programs.clone().unwrap_or_else(programs), &data);
        server.launch();
        drop(first);
        server
    }

    /// The data directory of this server.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The file that holds the file system of [`Options::loop_disk`].
    #[must_use]
    pub fn disk_image(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    /// The port on which the server listens; a restart keeps it.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The API key of the tenant `default`.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The server's pid.
    ///
    /// # Panics
    /// When the server does not run.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().expect("it runs").id()).expect("pids are small")
    }

    /// Whether the server was started and neither killed nor awaited.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// A client of the tenant `default`.
    #[must_use]
    pub fn http(&self) -> Http {
        self.client(Some(&self.key))
    }

    /// A client with this key.
    #[must_use]
    pub fn client(&self, key: Option<&str>) -> Http {
        let address = self.options.network.as_ref().map(|network| network.address);
        let http = Http::new(self.port, key).at(address.unwrap_or(Ipv4Addr::LOCALHOST));
        match &self.options.authority {
            Some(authority) => http.over_tls(&https::trusting(authority)),
            None => http,
        }
    }

    /// What the server has written to standard error so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts the server again on the same data and port.
    pub fn launch(&mut self) {
        assert!(self.child.is_none(), "it runs");
        self.spawn(&self.options.env.clone());
        self.wait_until_ready();
    }

    /// Uses the programs under test from the next start on, without the environment variables that
    /// were set for other ones.
    pub fn use_programs_under_test(&mut self) {
        self.options.programs = None;
        self.options.env.clear();
    }

    /// Starts the server again with one more environment variable, for this start only, and returns
    /// without waiting.
    pub fn launch_with(&mut self, name: &str, value: &str) {
        assert!(self.child.is_none(), "it runs");
        let mut env = self.options.env.clone();
        env.push((name.to_owned(), value.to_owned()));
        self.spawn(&env);
    }

    fn spawn(&mut self, env: &[(String, String)]) {
        let log = self.folder.path().join("log");
        let open = || -> File {
            OpenOptions::new().create(true).append(true).open(&log).expect("the log opens")
        };
        let mut command = self.program();
        if self.options.descriptors > 0 {
            // The shell becomes the server by `exec`, so its pid is the server's.
            let limited = format!("ulimit -n {} && exec \"$0\" \"$@\"", self.options.descriptors);
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(limited).arg(command.get_program());
            let changes = command
                .get_envs()
                .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)));
            for (name, value) in changes.collect::<Vec<_>>() {
                match value {
                    Some(value) => shell.env(name, value),
                    None => shell.env_remove(name),
                };
            }
            command = shell;
        }
        command.arg("serve").envs(env.iter().cloned());
        command.stdin(Stdio::null()).stdout(open()).stderr(open());
        self.child = Some(command.spawn().expect("isolet starts"));
    }

    /// The `isolet` command with this server's environment.
    #[must_use]
    pub fn program(&self) -> Command {
        let network = self.options.network.as_ref();
        let at = match network {
            Some(network) => network.address,
            None if self.options.everywhere => Ipv4Addr::UNSPECIFIED,
            None => Ipv4Addr::LOCALHOST,
        };
        let program = self.options.programs.clone().unwrap_or_else(programs).join("isolet");
        let mut command =
            Command::new(if network.is_some() { "nsenter".into() } else { program.clone() });
        if let Some(network) = network {
            // It becomes the program by `exec`, so its pid is the server's.
            command.arg(format!("--net={}", network.namespace.display())).arg(program);
            command.process_group(0);
        }
        command
            .env_remove("RUST_LOG")
            .env_remove("ISOLET_URL")
            .env("ISOLET_DATA_DIR", self.data())
            .env("ISOLET_CONFIG", self.folder.path().join("isolet.toml"))
            .env("ISOLET_LISTEN", format!("{at}:{}", self.port))
            .env("ISOLET_ALLOW_PLAINTEXT", (!at.is_loopback()).to_string())
            .env("ISOLET_API_KEY", &self.key)
            .env("ISOLET_WARM_POOL_SIZE", self.options.ready.to_string());
        // Tests look at the files of sandboxes on the host, unless they choose a size.
        if !self.options.config.contains("disk_mib") {
            command.env("ISOLET_DEFAULT_DISK_MIB", "0");
        }
        if self.options.authority.is_some() {
            command
                .env("ISOLET_URL", format!("https://127.0.0.1:{}", self.port))
                .env("ISOLET_CA", self.folder.path().join("ca.pem"));
        }
        command
    }

    /// Runs a client command to its end.
    ///
    /// # Panics
    /// When the command cannot be started.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Output {
        self.program().args(args).stdin(Stdio::null()).output().expect("isolet starts")
    }

    /// Waits until the server answers.
    ///
    /// # Panics
    /// With the log, when the server ends instead.
    pub fn wait_until_ready(&mut self) {
        let http = self.client(None);
        wait_until("the server answers", SOON, || {
            let child = self.child.as_mut().expect("it runs");
            if let Some(status) = child.try_wait().expect("its child") {
                panic!("the server ended with {status}: {}", self.log());
            }
            http.try_send("GET", "/health", None).is_ok_and(|r| r.status == 200).then_some(())
        });
    }

    /// Waits until the server answers, or has ended at a failpoint that it reached at its start.
    /// Returns whether it answers.
    ///
    /// # Panics
    /// When neither happens.
    pub fn answers_or_ends(&mut self) -> bool {
        let http = self.client(None);
        wait_until("the server answers or ends", SOON, || {
            if self.has_ended() {
                return Some(false);
            }
            http.try_send("GET", "/health", None).is_ok_and(|r| r.status == 200).then_some(true)
        })
    }

    /// Whether the server has ended without further action; it can then be launched again.
    pub fn has_ended(&mut self) -> bool {
        let ended =
            self.child.as_mut().is_none_or(|it| it.try_wait().expect("its child").is_some());
        if ended {
            self.child = None;
        }
        ended
    }

    /// Sends SIGKILL and waits until the server is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until the server has ended without further action (by a failpoint or a signal) and
    /// returns its status.
    ///
    /// # Panics
    /// When the server does not end.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        let child = self.child.as_mut().expect("it runs");
        let status = wait_until("the server ends", SOON, || child.try_wait().expect("its child"));
        self.child = None;
        status
    }

    /// Kills the server with SIGKILL and starts it again.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    /// Simulates a reboot: the server and everything that it ran are gone, the disk remains.
    pub fn reboot(&mut self) {
        self.power_off();
        self.launch();
    }

    /// Simulates a power failure: the server and everything that it ran are gone, the disk remains.
    pub fn power_off(&mut self) {
        self.kill();
        traces::erase(&self.data());
    }

    /// Simulates the loss of the machine: the server, everything that it ran and the processes that
    /// outlive it are gone at the same time. The disk remains.
    pub fn lose_machine(&mut self) {
        self.kill();
        end_all(&self.data());
    }

    /// Sends SIGTERM and waits until the server has ended.
    pub fn stop(&mut self) -> std::process::ExitStatus {
        process::signal(self.pid(), Signal::TERM);
        self.wait()
    }

    /// Creates a sandbox with a generated id.
    #[track_caller]
    #[must_use]
    pub fn sandbox(&self) -> Sandbox {
        self.sandbox_with(&json!({}))
    }

    /// Creates a sandbox with the fields of `spec`.
    ///
    /// # Panics
    /// When the request is refused.
    #[track_caller]
    #[must_use]
    pub fn sandbox_with(&self, spec: &Value) -> Sandbox {
        let info = self.http().post("/v1/sandboxes", spec).expect(201).json();
        self.named(info["id"].as_str().expect("it has an id"))
    }

    /// A handle for a sandbox id, whether or not that sandbox exists.
    #[must_use]
    pub fn named(&self, id: &str) -> Sandbox {
        Sandbox { id: id.to_owned(), http: self.http() }
    }

    /// Creates a key with `isolet keys add`.
    ///
    /// # Panics
    /// When the command fails.
    #[track_caller]
    pub fn add_key(&mut self, args: &[&str]) -> String {
        let mut all = vec!["keys", "add"];
        all.extend_from_slice(args);
        let output = self.command(&all);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "keys add {args:?}: {errors}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let key = said.split_whitespace().find(|word| word.len() >= 24).expect("prints a key");
        self.keys.push(key.to_owned());
        key.to_owned()
    }

    /// Everything below the directory of snapshots, except the empty staging area and the layers.
    #[must_use]
    pub fn snapshot_files(&self) -> Vec<PathBuf> {
        let entries = |at: &Path| fs::read_dir(at).into_iter().flatten().flatten();
        let mut found = Vec::new();
        for entry in entries(&self.data().join("snapshots")) {
            match entry.file_name().to_str() {
                Some("layers") => {}
                Some("staging") => found.extend(entries(&entry.path()).map(|entry| entry.path())),
                _ => found.push(entry.path()),
            }
        }
        found
    }

    /// The directories of the layers that sandboxes and snapshots share.
    #[must_use]
    pub fn snapshot_layers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.data().join("snapshots/layers"));
        entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// What the server has left on the machine so far.
    #[must_use]
    pub fn traces(&self) -> Traces {
        Traces::of(&self.data())
    }

    /// The ids of all sandboxes of the client's tenant.
    #[must_use]
    pub fn ids(&self, http: &Http) -> Vec<String> {
        let list = http.get("/v1/sandboxes?limit=1000").json();
        let ids = list.as_array().into_iter().flatten().filter_map(|one| one["id"].as_str());
        ids.map(str::to_owned).collect()
    }

    fn clients(&self) -> impl Iterator<Item = Http> {
        [&self.key].into_iter().chain(&self.keys).map(|key| self.client(Some(key)))
    }

    /// Checks the general invariant: a request is answered, a new sandbox can be created and works,
    /// and the machine holds what the lists say.
    ///
    /// # Panics
    /// When one of these does not hold.
    #[track_caller]
    pub fn healthy(&self) {
        let sandbox = self.sandbox();
        sandbox.run("echo well").is("well\n", 0);
        sandbox.delete();
        self.wait_until_tidy();
    }

    /// Waits until the machine holds what the lists say.
    ///
    /// # Panics
    /// With the differences, when that does not happen.
    #[track_caller]
    pub fn wait_until_tidy(&self) {
        let mut ids: Vec<String> = Vec::new();
        for http in self.clients() {
            ids.extend(self.ids(&http));
        }
        ids.sort();
        ids.dedup();
        let count = ids.len();
        let mut seen = Traces::default();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until("nothing is left over", SOON, || {
                seen = self.traces();
                seen.holds(count + self.options.ready + self.options.others).then_some(())
            });
        }));
        assert!(found.is_ok(), "{count} sandboxes are listed, and there are {seen:?}");
    }

    /// Deletes every sandbox and looks for leftovers. In a fleet the lists name the sandboxes of the other
    /// nodes too, and a node that has just come back may list one that it had before.
    fn leave(&mut self) {
        let clients: Vec<Http> = self.clients().collect();
        let expected = self.options.ready + self.options.others;
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until("all sandboxes are deleted, and nothing is left over", SOON, || {
                let mut answers = Vec::new();
                for http in &clients {
                    for id in self.ids(http) {
                        let path = format!("/v1/sandboxes/{id}");
                        let answer = http.try_send("DELETE", &path, None);
                        answers.push((id, answer.map(|reply| (reply.status, reply.text()))));
                    }
                }
                let seen = self.traces();
                last = format!("deleted last: {answers:?}; there are {seen:?}");
                (answers.is_empty() && seen.holds(expected)).then_some(())
            });
        }));
        assert!(found.is_ok(), "{last}");
        let data = self.data();
        self.stop();
        wait_until("the server's own processes end", SOON, || {
            let left = helpers(&data);
            left.is_empty().then_some(())
        });
        let bases = traces::parent_cgroups(&data);
        assert!(bases.is_empty(), "groups are left: {bases:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() && !std::thread::panicking() {
            let clean =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.leave())).is_ok();
            if !clean {
                self.keep_log();
            }
            let log = self.log();
            self.erase();
            assert!(clean, "the server left something behind: {log}");
            return;
        }
        if std::thread::panicking() {
            eprintln!("--- the server's log ---\n{}", self.log());
            self.keep_log();
        }
        self.erase();
    }
}

impl Server {
    /// Copies the log of a failed test to where it stays, and prints that place.
    fn keep_log(&self) {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-logs/servers");
        let kept = std::env::var_os("ISOLET_TEST_LOGS").map_or(own, PathBuf::from);
        let test = std::thread::current().name().unwrap_or("unnamed").replace("::", ".");
        let to = kept.join(format!("{test}-{}.log", self.port));
        let from = self.folder.path().join("log");
        match fs::create_dir_all(&kept).and_then(|()| fs::copy(from, &to)) {
            Ok(_) => eprintln!("--- this log is kept in {} ---", to.display()),
            Err(error) => eprintln!("--- the log cannot be kept in {}: {error} ---", to.display()),
        }
    }

    fn erase(&mut self) {
        self.kill();
        let data = self.data();
        end_all(&data);
        if self.mounted {
            let _ = rustix::mount::unmount(&data, rustix::mount::UnmountFlags::DETACH);
        }
        erase(&data);
    }
}

/// Mounts a new disk for a data directory.
fn mount(data: &Path, mib: usize) {
    let size = std::ffi::CString::new(format!("size={mib}m,mode=700")).expect("no NUL");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", data, "tmpfs", flags, size.as_c_str()).expect("it is mounted");
}

/// Mounts an overlay on a data directory, with its files beside it.
fn mount_overlay(data: &Path) {
    let beside = ["lower", "upper", "work"].map(|name| data.with_file_name(name));
    beside.iter().for_each(|path| fs::create_dir(path).expect("it is new"));
    let [lower, upper, work] = beside.map(|path| path.display().to_string());
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let options = std::ffi::CString::new(options).expect("no NUL");
    let flags = rustix::mount::MountFlags::empty();
    let mounted = rustix::mount::mount("overlay", data, "overlay", flags, options.as_c_str());
    mounted.expect("it is mounted");
}

/// Starts a server and creates one sandbox on it.
#[must_use]
pub fn one() -> (Server, Sandbox) {
    let server = Server::start();
    let sandbox = server.sandbox();
    (server, sandbox)
}
