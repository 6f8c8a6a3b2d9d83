//! Makes faults in the running lab, and undoes them: part of the holder.
//!
//! An emulated link loses packets because its emulator is told to; a plain cable and a node lose
//! theirs at the switch, whose ports are closed, so that nobody's interface goes down.

use crate::emulator::Running;
use crate::error::{Doing as _, LabError};
use crate::fault::{self, Active, Fault, Lasting, Target};
use crate::network::NodeHandles;
use crate::output;
use crate::plan::{self, Interface, Node};
use crate::spec::{Planned, Spec};
use crate::strike::{self, Connection};
use crate::tools::batch;
use gridmpi_report::units::format_duration;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
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
    /// Machines that have their other address towards the wide area.
    renumbered: BTreeSet<usize>,
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
        let (active, renumbered) = (Active::default(), BTreeSet::new());
        Ok(Self { spec: spec.clone(), nodes, active, planned, renumbered, record })
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
                output::log(format_args!("cannot {}: {why}", planned.what));
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
        if lasts.is_some_and(|lasts| lasts.is_zero()) {
            return Err(fault::TOO_SHORT.to_owned());
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
            Fault::Forget { node } => {
                let node = reach.nodes.get(node).ok_or("no such node")?;
                strike::forget(node).map_err(|error| error.to_string())?;
                words
            }
            Fault::Renumber { node } => {
                let address = self.renumber(node, reach).map_err(|error| error.to_string())?;
                format!("{words}: {address}")
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
                output::log(error);
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

    /// Both ends are broken off; what NAT hides is only told by the kernel of the end that is known.
    fn reset(&self, from: &[usize], to: &[usize], reach: &Reach<'_>) -> Result<usize, LabError> {
        let mut ended = Vec::new();
        for (node, handles) in from.iter().filter_map(|from| self.machine(*from, reach)) {
            let others = to.iter().filter_map(|to| self.nodes.get(*to));
            let mut addresses: Vec<_> = others
                .filter(|other| *other != node)
                .flat_map(|other| fault::addresses(&self.spec, &self.nodes, node, other))
                .collect();
            addresses.sort_unstable();
            addresses.dedup();
            let connections = strike::reset(handles, &addresses)?;
            ended.extend(connections.into_iter().map(|connection| (node, connection)));
        }
        for (node, handles) in to.iter().filter_map(|to| self.machine(*to, reach)) {
            let is_here = |other: &&(&Node, Connection)| {
                other.1.is_between(&own_addresses(other.0), &own_addresses(node))
            };
            let here: Vec<_> = ended.iter().filter(is_here).map(|(_, one)| one).collect();
            strike::reset_far(handles, &here)?;
        }
        Ok(ended.len())
    }

    fn machine<'a>(
        &'a self,
        index: usize,
        reach: &Reach<'a>,
    ) -> Option<(&'a Node, &'a NodeHandles)> {
        Some((self.nodes.get(index)?, reach.nodes.get(index)?))
    }

    /// Says which address it has now.
    fn renumber(&mut self, index: usize, reach: &Reach<'_>) -> Result<Ipv4Addr, LabError> {
        let no_address = || LabError::Usage("it has no address towards the wide area".to_owned());
        let (node, handles) = self.machine(index, reach).ok_or_else(no_address)?;
        let wan = node.wan_interface().ok_or_else(no_address)?;
        let other = node.other_wan().ok_or_else(no_address)?;
        let is_back = self.renumbered.contains(&index);
        let [from, to] = if is_back { [other, wan.address] } else { [wan.address, other] };
        let others = self.nodes.iter().zip(reach.nodes).enumerate();
        let others = others.filter(|(at, (node, _))| *at != index && node.wan().is_some());
        let others = others.map(|(_, (_, handles))| handles);
        strike::renumber(handles, [from, to], (wan.prefix, &wan.mac), others)?;
        if !self.renumbered.remove(&index) {
            self.renumbered.insert(index);
        }
        Ok(to)
    }

    /// Who reads the record notices where it ends.
    fn note(&mut self, now: Duration, what: &str) {
        let _ = writeln!(self.record, "{} ms: {}", now.as_millis(), what.replace('\n', " "));
    }
}

/// What a machine may be known by.
fn own_addresses(node: &Node) -> Vec<Ipv4Addr> {
    [node.lan(), node.wan(), node.other_wan()].into_iter().flatten().collect()
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
