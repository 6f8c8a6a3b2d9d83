//! The job file of a lab: where `gridmpi run` finds the nodes and how it reaches them.

use crate::error::LabError;
use crate::plan::{self, Node, Role};
use crate::spec::Spec;
use gridmpi_report::units::{format_duration, format_rate};
use std::fmt::Write as _;

/// What a job file needs that the lab does not say.
#[derive(Debug, Clone)]
pub struct Choices {
    /// Launcher of each cluster, by name; others use `default_launcher`.
    pub launchers: Vec<(String, String)>,
    /// Launcher of clusters that are not named.
    pub default_launcher: String,
    /// Ranks on each node.
    pub ranks_per_node: u32,
    /// Whether private clusters' relays are written, not only as a comment.
    pub relays: bool,
}

/// The port that relays listen on unless they are told otherwise.
const RELAY_PORT: u16 = 7118;

/// Reads `a=mpiexec.mpich,b=mpiexec.openmpi`.
///
/// # Errors
/// When a part is not `CLUSTER=LAUNCHER` or names no cluster of the lab.
pub fn read_launchers(text: &str, spec: &Spec) -> Result<Vec<(String, String)>, LabError> {
    let read = |part: &str| {
        let (cluster, launcher) = part.split_once('=').ok_or_else(|| {
            LabError::Usage(format!("`{part}` is not CLUSTER=LAUNCHER, as a=mpiexec.mpich"))
        })?;
        let (cluster, launcher) = (cluster.trim(), launcher.trim());
        if !spec.clusters.iter().any(|known| known.name == cluster) {
            return Err(LabError::Usage(format!("the lab has no cluster `{cluster}`")));
        }
        Ok((cluster.to_owned(), launcher.to_owned()))
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(read).collect()
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Writes the job file, to be used inside the lab (`gridmpi lab run`, or `lab exec head`), where
/// `lab-ssh` is on the search path, and takes ssh's place.
#[must_use]
pub fn write(spec: &Spec, choices: &Choices) -> String {
    let mut text = format!("# Job file of the lab `{}`\n", spec.name);
    text += &place(spec);
    let nodes = plan::nodes(spec);
    for index in 0..spec.clusters.len() {
        text += &cluster(spec, choices, &nodes, index);
    }
    // A job knows nothing of hosts that are in no cluster.
    let inner = |site: usize| site < spec.clusters.len();
    let joins = |(a, b): (usize, usize)| inner(a) && inner(b);
    for link in spec.links.iter().filter(|link| joins(link.between)) {
        let name = |site: usize| quoted(spec.site_name(site));
        let (a, b) = link.between;
        let _ = write!(text, "\n[[link]]\nbetween = [{}, {}]\n", name(a), name(b));
        if let Some(rate) = link.bandwidth {
            let _ = writeln!(text, "bandwidth = {}", quoted(&format_rate(rate as f64)));
        }
        if !link.delay.is_zero() {
            let _ = writeln!(text, "delay = {}", quoted(&format_duration(link.delay)));
        }
    }
    text
}

/// Where in the lab the job is to be started from, if not on the head: what private clusters can
/// reach.
fn place(spec: &Spec) -> String {
    let is_private = |cluster: usize| spec.private(cluster).is_some();
    if !(0..spec.clusters.len()).any(is_private) {
        return String::new();
    }
    let private = "# Private clusters are started on their own heads (`head`), which reach the wide area by NAT only.\n";
    match spec.hosts.first() {
        Some(host) => format!(
            "{private}# To be started on a public host: gridmpi lab exec {} -- gridmpi run FILE\n",
            host.name
        ),
        None => format!(
            "{private}# Nobody can reach the lab's head from there: add a [[host]] to the lab and start it on that.\n"
        ),
    }
}

fn cluster(spec: &Spec, choices: &Choices, nodes: &[Node], index: usize) -> String {
    let cluster = &spec.clusters[index];
    let chosen = choices.launchers.iter().find(|(name, _)| *name == cluster.name);
    let launcher = chosen.map_or(choices.default_launcher.as_str(), |(_, launcher)| launcher);
    let mine = nodes.iter().filter(|node| node.cluster == index && node.role == Role::Node);
    let hosts: Vec<_> =
        mine.filter_map(Node::lan).map(|address| quoted(&address.to_string())).collect();
    let ranks = u32::from(cluster.nodes).saturating_mul(choices.ranks_per_node);
    let interface = if cluster.private.is_some() { "eth0" } else { "eth1" };
    let mut text = format!(
        "\n[[cluster]]\nname = {}\nlauncher = {}\nranks = {ranks}\nhosts = [{}]\n\
         ranks_per_host = {}\nremote_shell = \"lab-ssh\"\ninterface = \"{interface}\"\n",
        quoted(&cluster.name),
        quoted(launcher),
        hosts.join(", "),
        choices.ranks_per_node,
    );
    if cluster.private.is_some() {
        let head = quoted(&plan::cluster_head(&cluster.name));
        let gateways = nodes.iter().filter(|n| n.cluster == index && n.role == Role::Gateway);
        let relays: Vec<_> =
            gateways.map(|node| quoted(&format!("{}:{RELAY_PORT}", node.name))).collect();
        let comment = if choices.relays { "" } else { "# " };
        let _ = writeln!(text, "head = {head}\n{comment}relays = [{}]", relays.join(", "));
    } else if let Some(rate) = cluster.interface {
        let rate = quoted(&format_rate(rate as f64));
        let _ = writeln!(text, "interface_bandwidth = {rate}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_file_names_every_node() {
        let text = "[[cluster]]\nname = \"a\"\nnodes = 2\ninterface = \"50 Mbit/s\"\n[[cluster]]\nname = \"b\"\nnodes = 1\n\
                    [[link]]\ndelay = \"10 ms\"\nbandwidth = \"160 Mbit/s\"\n";
        let spec = Spec::parse(text, "t", "t").unwrap();
        let launchers = read_launchers("b=mpiexec.openmpi --oversubscribe", &spec).unwrap();
        let default_launcher = "mpiexec.mpich".to_owned();
        let choices = Choices { launchers, default_launcher, ranks_per_node: 3, relays: false };
        let job: toml::Table = write(&spec, &choices).parse().unwrap();
        let a = &job["cluster"][0];
        assert_eq!(a["launcher"].as_str(), Some("mpiexec.mpich"));
        assert_eq!(a["hosts"].as_array().unwrap().len(), 2);
        assert_eq!(a["interface_bandwidth"].as_str(), Some("50 Mbit/s"));
        assert_eq!(a["ranks"].as_integer(), Some(6));
        assert_eq!(job["cluster"][1]["launcher"].as_str(), Some("mpiexec.openmpi --oversubscribe"));
        assert_eq!(job["link"][0]["delay"].as_str(), Some("10 ms"));
        assert_eq!(job["link"][0]["bandwidth"].as_str(), Some("160 Mbit/s"));
        assert!(read_launchers("z=x", &spec).is_err() && read_launchers("a", &spec).is_err());
    }

    #[test]
    fn private_clusters_are_started_on_their_own_heads() {
        let text = "[[cluster]]\nname = \"a\"\nnodes = 2\nprivate = true\ngateways = 2\ngateway_interface = \"20 Mbit/s\"\nnetwork = \"10.9.0.0/16\"\n\
                    [[cluster]]\nname = \"b\"\nnodes = 1\n[[host]]\nname = \"pub\"\n[[link]]\ndelay = \"10 ms\"\n";
        let spec = Spec::parse(text, "t", "t").unwrap();
        let mut choices = Choices {
            launchers: Vec::new(),
            default_launcher: "mpiexec".to_owned(),
            ranks_per_node: 1,
            relays: false,
        };
        let written = write(&spec, &choices);
        assert!(written.contains("\n# relays = [\"a-gw1:7118\", \"a-gw2:7118\"]\n"), "{written}");
        assert!(written.contains("lab exec pub -- gridmpi run"), "{written}");
        let job: toml::Table = written.parse().unwrap();
        let a = &job["cluster"][0];
        assert_eq!((a["head"].as_str(), a["interface"].as_str()), (Some("a-head"), Some("eth0")));
        assert_eq!(a["hosts"].as_array().unwrap().len(), 2);
        assert_eq!(a["hosts"][1].as_str(), Some("10.9.0.2"));
        assert!(a.get("interface_bandwidth").is_none() && job["cluster"][1].get("head").is_none());
        // Links to the host are nothing to a job.
        assert_eq!(job["link"].as_array().unwrap().len(), 1);
        choices.relays = true;
        let job: toml::Table = write(&spec, &choices).parse().unwrap();
        assert_eq!(job["cluster"][0]["relays"].as_array().unwrap().len(), 2);
        assert!(job["cluster"][1].get("relays").is_none());
    }
}
