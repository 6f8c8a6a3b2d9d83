//! The job file of a lab: where `gridmpi run` finds the nodes and how it reaches them.

use crate::error::LabError;
use crate::plan;
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
}

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
/// `lab-ssh` is on the search path.
#[must_use]
pub fn write(spec: &Spec, choices: &Choices) -> String {
    let mut text = format!("# Job file of the lab `{}`\n", spec.name);
    let nodes = plan::nodes(spec);
    for (index, cluster) in spec.clusters.iter().enumerate() {
        let chosen = choices.launchers.iter().find(|(name, _)| *name == cluster.name);
        let launcher = chosen.map_or(choices.default_launcher.as_str(), |(_, launcher)| launcher);
        let hosts = nodes.iter().filter(|node| node.cluster == index);
        let hosts: Vec<_> = hosts.map(|node| quoted(&node.lan().to_string())).collect();
        let ranks = u32::from(cluster.nodes).saturating_mul(choices.ranks_per_node);
        let _ = write!(
            text,
            "\n[[cluster]]\nname = {}\nlauncher = {}\nranks = {ranks}\nhosts = [{}]\n\
             ranks_per_host = {}\nremote_shell = \"lab-ssh\"\ninterface = \"eth1\"\n",
            quoted(&cluster.name),
            quoted(launcher),
            hosts.join(", "),
            choices.ranks_per_node,
        );
        if let Some(rate) = cluster.interface {
            let rate = quoted(&format_rate(rate as f64));
            let _ = writeln!(text, "interface_bandwidth = {rate}");
        }
    }
    for link in &spec.links {
        let name = |cluster: usize| quoted(&spec.clusters[cluster].name);
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
        let choices = Choices { launchers, default_launcher, ranks_per_node: 3 };
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
}
