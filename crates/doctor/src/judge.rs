//! From facts to findings, without any I/O.

mod buffers;
mod idle;
mod link;
mod machine;
mod path;
mod relay;
#[cfg(test)]
mod tests;

use crate::facts::{Facts, Machine, Node};
use crate::finding::{Finding, Place, Severity};

/// Connections between clusters are kept alive by a packet after so many seconds of rest at most, some after half of that (`sock`'s `rest`).
const KEEP_ALIVE_S: u32 = 10;

/// All that is to be said of `facts`: the worst first, one finding for what is the same at several places.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all: Vec<Finding> = facts.troubles.iter().map(trouble).collect();
    all.extend(path::judge(facts));
    all.extend(relay::judge(facts));
    all.extend(facts.machines.iter().flat_map(|one| machine::judge(one, facts)));
    all.extend(machine::shared_addresses(facts));
    all.extend(link::judge(facts));
    let mut merged: Vec<Finding> = Vec::new();
    for finding in all {
        match merged.iter_mut().find(|known| is_same(known, &finding)) {
            Some(known) => {
                let new = finding.places.into_iter().filter(|place| !known.places.contains(place));
                let new: Vec<Place> = new.collect();
                known.places.extend(new);
            }
            None => merged.push(finding),
        }
    }
    // Stable: what was looked at first is told first.
    merged.sort_by_key(|finding| finding.severity);
    merged
}

fn is_same(a: &Finding, b: &Finding) -> bool {
    let of = |one: &Finding| (one.severity, one.code);
    of(a) == of(b) && a.what == b.what && a.remedy == b.remedy && a.lines == b.lines
}

fn trouble(trouble: &crate::facts::Trouble) -> Finding {
    let place = Place { cluster: trouble.cluster.clone(), ..Place::default() };
    if !trouble.is_absence() {
        return Finding::new(Severity::Error, "not-looked", place, trouble.what.clone(), "");
    }
    let at: Vec<String> = trouble.at.iter().map(ToString::to_string).collect();
    let port = trouble.at.first().map_or(0, |at| at.port());
    let evidence = format!("they come to {}", at.join(", "));
    let hint =
        trouble.hint.as_deref().unwrap_or("what the launcher and the nodes said stands above");
    Finding::new(Severity::Error, "absent", place, trouble.what.clone(), evidence).remedy(format!(
        "{hint}. Nodes must reach this machine: set `listen = \":{port}\"` in [job], let it \
         through here (iptables -I INPUT -p tcp --dport {port} -j ACCEPT), and try it by hand: `gridmpi doctor --listen :{port}` here, \
         `gridmpi doctor HOST:{port}` on a node"
    ))
}

pub(crate) fn machine_of<'a>(facts: &'a Facts, node: &Node) -> Option<&'a Machine> {
    facts.machines.iter().find(|machine| machine.node == *node)
}
