//! Makes sandboxes and says how long each took: `one DATA AGENT COUNT`.
use isolet_jail::{Cage, Config, Launcher, empty_trash};
use isolet_wire::launch::{Limits, Spec};
use std::path::Path;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let mut config = Config::beside(Path::new(&args[1]))?;
    config.launcher = config.launcher.parent().unwrap().parent().unwrap().join("isolet-launcher");
    config.agent = (&args[2]).into();
    let begun = Instant::now();
    let mut launcher = Launcher::start(&config)?;
    println!("launcher ready after {:?}", begun.elapsed());
    let limits = Limits { memory_mib: 512, cpu_millis: 1000, pids: 256 };
    let count: u32 = args[3].parse()?;
    let mut times = Vec::new();
    for slot in 0..count {
        let name = format!("try{slot}");
        let spec = Spec { name: name.clone(), slot, hostname: "box".into(), limits };
        let begun = Instant::now();
        let pid = launcher.launch(&spec)?;
        times.push(begun.elapsed());
        if slot == 0 {
            println!("agent {pid}");
            if let Ok(ms) = std::env::var("HOLD_MS") {
                std::thread::sleep(Duration::from_millis(ms.parse()?));
            }
            println!("{:?}", Cage::open(&config, &name).usage());
            if let Ok(out) =
                std::fs::read_to_string(config.sandbox_dir(&name).join("workspace/out"))
            {
                println!("{out}");
            }
        }
        let cage = Cage::open(&config, &name);
        cage.kill()?;
        if !cage.wait_empty(Duration::from_secs(5)) {
            println!("not empty");
        }
        cage.remove()?;
    }
    times.sort();
    println!("median {:?} p99 {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
    empty_trash(&config)?;
    Ok(())
}
