//! What must be true of a sandbox's files and commands, at the end and after its agent was killed.

use super::work::{AGAIN, Gone, Worker, hash};
use isolet_kit::{LONG, wait_until};
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

impl Worker {
    /// What is wrong with the content of a file; `None` when it is right.
    pub(super) fn wrong(&self, name: &str, bytes: Option<&[u8]>) -> Option<String> {
        let file = &self.files[name];
        match bytes {
            None if file.acknowledged => Some(format!("{name} was acknowledged, and is not there")),
            Some(bytes) if !file.hashes.contains(&hash(bytes)) => {
                Some(format!("{name} holds {} bytes that nobody wrote", bytes.len()))
            }
            _ => None,
        }
    }

    /// Checks that every command that is known to have run ran once, and no command ran twice.
    fn wrong_in(&self, ledger: &str) -> Option<String> {
        let mut ran: BTreeMap<u64, usize> = BTreeMap::new();
        for line in ledger.lines() {
            let Ok(number) = line.parse() else { return Some(format!("a line {line:?}")) };
            *ran.entry(number).or_default() += 1;
        }
        let unknown = ran.keys().find(|number| !self.ledger.contains_key(number));
        if let Some(number) = unknown {
            return Some(format!("command {number} was never given"));
        }
        let times = |number: &u64| ran.get(number).copied().unwrap_or(0);
        let wrong =
            |(number, known): &(&u64, &bool)| times(number) > 1 || (**known && times(number) != 1);
        let (number, known) = self.ledger.iter().find(wrong)?;
        Some(format!("command {number} ran {} times; its end was reported: {known}", times(number)))
    }

    /// Checks after the kills are over that everything promised is there.
    pub(super) fn finish(&mut self) -> Result<(), Gone> {
        self.check()?;
        self.command()?;
        let names: Vec<String> = self.files.keys().cloned().collect();
        for name in names {
            let answer = self.until(|it| it.call("GET", &format!("/files/{name}"), None))?;
            let bytes = (answer.status == 200).then_some(&answer.body[..]);
            if let Some(wrong) = self.wrong(&name, bytes) {
                self.unless_gone(&wrong)?;
            }
        }
        let ledger = self.until(|it| it.call("GET", "/files/ledger", None))?;
        if let Some(wrong) = self.wrong_in(&ledger.text()) {
            self.unless_gone(&wrong)?;
        }
        let end = Instant::now() + LONG;
        while self.egress && !self.connect()? {
            assert!(Instant::now() < end, "{}: its egress does not come back", self.sandbox.id);
        }
        Ok(())
    }

    /// Checks after a kill of the agent that the sandbox has failed and reports why, and that its
    /// files are on the disk.
    pub(super) fn bury(&mut self) {
        let id = self.sandbox.id.clone();
        let state = wait_until(&format!("{id} is seen to have ended"), LONG, || {
            std::thread::sleep(AGAIN);
            let state = self.state();
            matches!(state.as_str(), "failed" | "sleeping").then_some(state)
        });
        let folder = self.field.data.join("sandboxes").join(&self.directory).join("workspace");
        let names: Vec<String> = self.files.keys().cloned().collect();
        for name in &names {
            let bytes = fs::read(folder.join(name)).ok();
            let wrong = self.wrong(name, bytes.as_deref());
            assert_eq!(wrong, None, "{id} is {state}, and its disk");
        }
        let ledger = fs::read_to_string(folder.join("ledger")).unwrap_or_default();
        assert_eq!(self.wrong_in(&ledger), None, "{id} is {state}, and its disk");
        if state == "failed" {
            for name in &names {
                let path = self.sandbox.path(&format!("/files/{name}"));
                let Ok(answer) = self.field.http.try_send("GET", &path, None) else { continue };
                self.tally.read_of_failed[usize::from(answer.status != 200)] += 1;
                if answer.status == 200 {
                    assert_eq!(self.wrong(name, Some(&answer.body)), None, "{id} failed");
                }
            }
        }
        *self.tally.ended.entry(state).or_default() += 1;
        self.delete();
    }
}
