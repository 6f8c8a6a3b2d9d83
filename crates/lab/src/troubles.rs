//! Makes faults in the running lab, and undoes them: part of the holder.
//!
//! An emulated link loses packets because its emulator is told to; a plain cable and a node lose
//! theirs at the switch, whose ports are closed, so that nobody's interface goes down.

use crate::emulator::Running;
use crate::error::{Doing as _, LabError};
use crate::fault::{self, Active, Fault, Lasting, Target};
use crate::network::NodeHandles;
use crate::plan::{self, Interface, Node};
use crate::spec::{Planned, Spec};
use crate::strike;
use crate::tools::batch;
use gridmpi_report::units::format_duration;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

/// Name of the record of faults in a lab's directory.
pub const FILE: &str = "faults.txt";

/// The parts of a lab that faults are done to.
pub(crate) struct Reach<'a> {
    /// The nodes, in the order of [`plan::nodes`].
    pub(crate) nodes: &'a [NodeHandles],
    /// For each link its two directions; `None` of a plain cable.
    pub(crate) links: Vec<Option<[&'a Running; 2]>>,
}

/// All faults of a lab. Times are since it came up.
pub(crate) struct Troubles {
    spec: Spec,
    nodes: Vec<Node>,
    active: Active,
    planned: VecDeque<Planned>,
    record: File,
}

impl Troubles {
    /// None yet; writes what happens to a file in the directory `home`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn new(spec: &Spec, home: &Path) -> Result<Self, LabError> {
        let record = File::create(home.join(FILE)).doing("cannot write the record of faults")?;
        let (planned, nodes) = (spec.faults.iter().cloned().collect(), plan::nodes(spec));
        Ok(Self { spec: spec.clone(), nodes, active: Active::default(), planned, record })
    }

    /// When there is something to do next.
    pub(crate) fn next(&self) -> Option<Duration> {
        let planned = self.planned.front().map(|planned| planned.at);
        planned.into_iter().chain(self.active.next_end()).min()
    }

    /// What is at work, in words.
    pub(crate) fn at_work(&self) -> Vec<String> {
        self.active.faults().map(|fault| fault.words(&self.spec)).collect()
    }

    /// Does what is due.
    pub(crate) fn advance(&mut self, now: Duration, reach: &Reach<'_>) {
        let ended = self.active.expire(now);
        self.end(now, &ended, reach);
        while let Some(planned) = self.planned.pop_front_if(|planned| planned.at <= now) {
            let words: Vec<&str> = planned.what.split_whitespace().collect();
            if let Err(why) = self.make(now, &words, planned.lasts, reach) {
                self.note(now, &format!("cannot {}: {why}", planned.what));
                eprintln!("cannot {}: {why}", planned.what);
            }
        }
    }

    /// Makes a fault; says what it did.
    ///
    /// # Errors
    /// Says why not.
    pub(crate) fn make(
        &mut self,
        now: Duration,
        words: &[&str],
        lasts: Option<Duration>,
        reach: &Reach<'_>,
    ) -> Result<String, String> {
        let fault = Fault::read(words, &self.spec)?;
        if lasts.is_some() && !fault.lasts() {
            return Err("only cut, silence and loss last: leave the time out".to_owned());
        }
        let words = words.join(" ");
        let said = match fault {
            Fault::Lasting(fault) => self.begin(now, fault, lasts, reach)?,
            Fault::Reset { from, to } => {
                let count = self.reset(&from, &to, reach).map_err(|error| error.to_string())?;
                format!("{words}: {}", counted(count, "connection", "connections"))
            }
            Fault::Kill { node, pattern } => {
                let node = reach.nodes.get(node).ok_or("no such node")?;
                let count = strike::kill(node, &pattern).map_err(|error| error.to_string())?;
                format!("{words}: {}", counted(count, "process", "processes"))
            }
            Fault::Restore(target) => {
                let ended = self.active.restore(target);
                self.end(now, &ended, reach);
                format!("{words}: {}", counted(ended.len(), "fault", "faults"))
            }
        };
        self.note(now, &said);
        Ok(said)
    }

    fn begin(
        &mut self,
        now: Duration,
        fault: Lasting,
        lasts: Option<Duration>,
        reach: &Reach<'_>,
    ) -> Result<String, String> {
        self.active.begin(fault, now, lasts);
        if let Err(error) = self.apply(fault.target(), reach) {
            self.active.restore(Some(fault.target()));
            let _ = self.apply(fault.target(), reach);
            return Err(error.to_string());
        }
        let time =
            lasts.map_or_else(String::new, |lasts| format!(" for {}", format_duration(lasts)));
        Ok(fault.words(&self.spec) + &time)
    }

    fn end(&mut self, now: Duration, ended: &[Lasting], reach: &Reach<'_>) {
        for fault in ended {
            if let Err(error) = self.apply(fault.target(), reach) {
                eprintln!("{error}");
            }
            let words = fault.words(&self.spec);
            self.note(now, &format!("end of {words}"));
        }
    }

    /// Makes a link or node be what the faults at work want it to be.
    fn apply(&self, target: Target, reach: &Reach<'_>) -> Result<(), LabError> {
        match target {
            Target::Link(link) => match reach.links.get(link) {
                Some(Some(directions)) => {
                    directions.iter().for_each(|one| one.disturb(self.active.loss(link)));
                    Ok(())
                }
                _ => {
                    let ports = [plan::link_port(link, false), plan::link_port(link, true)];
                    close(ports.iter(), self.active.is_cut(link))
                }
            },
            Target::Node(node) => {
                let silent = self.active.is_silent(node);
                let node = self.nodes.get(node);
                let ends = node.map(|node| [node.lan_interface(), node.wan_interface()]);
                let ports = ends.into_iter().flatten().flatten();
                close(ports.map(|Interface { port, .. }| port), silent)
            }
        }
    }

    fn reset(&self, from: &[usize], to: &[usize], reach: &Reach<'_>) -> Result<usize, LabError> {
        let mut count = 0;
        for index in from {
            let (Some(node), Some(handles)) = (self.nodes.get(*index), reach.nodes.get(*index))
            else {
                continue;
            };
            let others = to.iter().filter(|to| *to != index).filter_map(|to| self.nodes.get(*to));
            let mut addresses: Vec<_> = others
                .flat_map(|other| fault::addresses(&self.spec, &self.nodes, node, other))
                .collect();
            addresses.sort_unstable();
            addresses.dedup();
            count += strike::reset(handles, &addresses)?;
        }
        Ok(count)
    }

    /// Who reads the record notices where it ends.
    fn note(&mut self, now: Duration, what: &str) {
        let _ = writeln!(self.record, "{} ms: {}", now.as_millis(), what.replace('\n', " "));
    }
}

/// Closes ports of the switches, or opens them.
fn close<'a>(ports: impl Iterator<Item = &'a String>, closed: bool) -> Result<(), LabError> {
    // `linux/if_bridge.h`: disabled, forwarding.
    let state = if closed { 0 } else { 3 };
    let commands: Vec<_> = ports.map(|port| format!("link set dev {port} state {state}")).collect();
    batch("bridge", &commands)
}

fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}
