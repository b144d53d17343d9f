//! Measures what Isolet costs against the parts that it is built from. Each table is one run in which
//! the variants alternate, so that noise affects all of them. Read ratios, not microseconds.
#![forbid(unsafe_code)]

mod attack;
mod calls;
mod compare;
mod context;
mod create;
mod event;
mod far;
mod file;
mod fleet;
mod guest;
mod http;
mod image;
mod memory;
mod network;
mod nginx;
mod port;
mod process;
mod pty;
mod raw;
mod save;
mod scale;
mod secret;
mod server;
mod session;
mod shell;
mod snapshot;
mod socket;
mod stats;
mod terminal;
mod tty_socket;
mod wake;
mod warm_pool;

use clap::{Parser, Subcommand, ValueEnum};

/// Measure and print tables. Needs root, the four programs in one directory, and bubblewrap.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    /// Print this table [default: all but `snapshot`, `fleet`, `scale` and `attack`]
    #[arg(value_enum)]
    what: Vec<Table>,
    /// Directory of the programs isolet, isolet-launcher, isolet-agent and isolet-egress-proxy.
    #[arg(long, env = "ISOLET_BIN", default_value = "dist")]
    bin: std::path::PathBuf,
    /// Number of rounds of each table. More rounds reduce noise.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    #[command(flatten)]
    snapshot: snapshot::Sizes,
    #[command(flatten)]
    scale: scale::Scale,
    /// Run the web server of a table inside a sandbox (internal).
    #[arg(long, hide = true, value_name = "PORT")]
    serve: Option<u16>,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Compare two builds: `:` over WebSocket and HTTP, create to first output, 100 MB of output in
    /// JSON, and system calls.
    Compare(compare::Compare),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Table {
    /// Commands and output over each protocol, against raw pipes and `sh -c`.
    Shell,
    /// Create to first output and destroy, against bubblewrap and bare bash.
    Create,
    /// Memory of an idle sandbox, and a create with many alive.
    Memory,
    /// Create of a session, unscoped and scoped, against bare bash; a thousand in one sandbox.
    Session,
    /// A sleeping sandbox to its first output, against a cold create.
    Wake,
    /// Files of 1 KB and 1 GB, against `cp` inside.
    File,
    /// The cost of events for a command, with and without readers.
    Event,
    /// The cost of saving shell state: a command after a pause, and a sleep.
    Save,
    /// Terminals against a raw PTY and ttyd: echo, output, many clients, screens, memory.
    Terminal,
    /// A run in a code context, against the interpreter over bare pipes.
    Context,
    /// Start of a program in the background until its pid and its end are known, against fork and exec.
    Process,
    /// A web server inside: 1 KB and 100 MB through `/ports/`, against a connection inside and nginx.
    Port,
    /// Creates with egress; bytes, connections and DNS lookups through it, against a plain veth pair.
    Network,
    /// A layer of 100 MB against `tar`; creates from an image against the host's programs.
    Image,
    /// Response times of a nearly right key against a wrong one, and of another tenant's id against an unused one.
    Secret,
    /// Snapshots, creations from them and forks on ext4, xfs and btrfs, against cp, reflinks, subvolumes and podman.
    Snapshot,
    /// A fleet in network namespaces: commands, creates and 1 GB to the owner and to another node, against a
    /// server without `[cluster]`; the loss of machines, moves, and drains. ISOLET_BEFORE_PROGRAMS names an earlier build, which is
    /// compared without `[cluster]`. Needs `make etcd` and moto.
    Fleet,
    /// Attacks on memory and processor time against honest requests of their sizes, on a server with 512 MiB, and the
    /// commands of a neighbour while they run.
    Attack,
    /// etcd with 200 simulated nodes and 100,000 sandboxes: sizes, times, traffic, and the end of its leader. Needs
    /// `make etcd`, and neither root nor the programs.
    Scale,
}

fn main() -> anyhow::Result<()> {
    let mut args = Args::parse();
    if let Some(port) = args.serve {
        return guest::serve(port);
    }
    if let Some(BenchCommand::Compare(compare)) = &args.command {
        return compare::run(compare);
    }
    if args.what.is_empty() {
        args.what = Table::value_variants().to_vec();
        args.what.retain(|table| {
            !matches!(table, Table::Snapshot | Table::Fleet | Table::Scale | Table::Attack)
        });
    }
    for table in &args.what {
        println!("\nload {}", stats::load());
        match table {
            Table::Shell => shell::table(&args.bin, args.rounds)?,
            Table::Create => create::table(&args.bin, args.rounds)?,
            Table::Memory => memory::table(&args.bin)?,
            Table::Session => session::table(&args.bin, args.rounds)?,
            Table::Wake => wake::table(&args.bin, args.rounds)?,
            Table::File => file::table(&args.bin, args.rounds)?,
            Table::Event => event::table(&args.bin, args.rounds)?,
            Table::Save => save::table(&args.bin, args.rounds)?,
            Table::Context => context::table(&args.bin, args.rounds)?,
            Table::Terminal => terminal::table(&args.bin, args.rounds)?,
            Table::Process => process::table(&args.bin, args.rounds)?,
            Table::Port => port::table(&args.bin, args.rounds)?,
            Table::Network => network::table(&args.bin, args.rounds)?,
            Table::Image => image::table(&args.bin, args.rounds)?,
            Table::Secret => secret::table(&args.bin, args.rounds)?,
            Table::Snapshot => snapshot::table(&args.bin, args.rounds, &args.snapshot)?,
            Table::Fleet => fleet::table(&args.bin, args.rounds)?,
            Table::Scale => scale::table(&args.scale)?,
            Table::Attack => attack::table(&args.bin)?,
        }
    }
    Ok(())
}
