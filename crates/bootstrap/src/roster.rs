//! Who is expected, who has come, and whether they can work together. No I/O.

use crate::join::JoinRequest;
use crate::model::{ClusterName, JobTable, NetworkInfo, Registration};
use crate::secret::JobId;

/// A cluster of the job, as the job file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its name.
    pub name: ClusterName,
    /// Its number of ranks, if stated.
    pub ranks: Option<u32>,
    /// Whether it comes by `gridmpi join`.
    pub joins: bool,
    /// Its wide-area interface, if stated; handed to those who join.
    pub interface: Option<String>,
}

/// How far the clusters have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The cluster.
    pub name: ClusterName,
    /// Its number of ranks, if known.
    pub ranks: Option<u32>,
    /// Whether it still has to come by `gridmpi join`.
    pub to_join: bool,
    /// Whether all its ranks have called `MPI_Init`.
    pub registered: bool,
}

/// Why a cluster is not taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    /// The job cannot go on either.
    pub(crate) fatal: bool,
}

pub(crate) struct Roster {
    seats: Vec<Seat>,
    announced: bool,
}

struct Seat {
    expected: Expected,
    joined: Option<JoinRequest>,
    registration: Option<Registration>,
}

impl Roster {
    pub(crate) fn new(expected: Vec<Expected>) -> Self {
        let seat = |expected| Seat { expected, joined: None, registration: None };
        Self { seats: expected.into_iter().map(seat).collect(), announced: false }
    }

    pub(crate) fn expected(&self, index: usize) -> Option<&Expected> {
        self.seats.get(index).map(|seat| &seat.expected)
    }

    pub(crate) fn progress(&self) -> Vec<Progress> {
        self.seats.iter().map(Seat::progress).collect()
    }

    /// True the first time only: the table is announced once.
    pub(crate) fn announce(&mut self) -> bool {
        !std::mem::replace(&mut self.announced, true)
    }

    /// Everybody's table, once all have come.
    pub(crate) fn table(&self, job: JobId, network: &NetworkInfo) -> Option<JobTable> {
        let clusters: Option<Vec<_>> =
            self.seats.iter().map(|seat| seat.registration.clone()).collect();
        Some(JobTable { job: job.0, clusters: clusters?, network: network.clone() })
    }

    /// Position of `name` among the job's clusters.
    pub(crate) fn find(&self, name: &ClusterName) -> Result<usize, Refusal> {
        let position = self.seats.iter().position(|seat| seat.expected.name == *name);
        position.ok_or_else(|| {
            let names: Vec<_> = self.seats.iter().map(|s| s.expected.name.as_str()).collect();
            refuse(format!(
                "this job has no cluster `{name}`; its clusters are: {}. Give one of \
                            these names to --cluster",
                names.join(", ")
            ))
        })
    }

    /// Takes in a launcher that comes by `gridmpi join`.
    pub(crate) fn join(&mut self, request: JoinRequest) -> Result<usize, Refusal> {
        let index = self.find(&request.cluster)?;
        let name = &request.cluster;
        let seat = &mut self.seats[index];
        if !seat.expected.joins {
            return Err(refuse(format!(
                "cluster `{name}` is started by `gridmpi run` itself; to let it join, give it \
                 launcher = \"join\" in the job file (or --cluster {name}=join)"
            )));
        }
        if let Some(first) = &seat.joined {
            return Err(refuse(format!(
                "cluster `{name}` has already joined from {} (pid {})",
                first.host, first.pid
            )));
        }
        seat.joined = Some(request);
        Ok(index)
    }

    /// Takes in a cluster that has come up.
    pub(crate) fn register(&mut self, registration: Registration) -> Result<usize, Refusal> {
        if let Err(error) = registration.check() {
            return Err(refuse(format!("the registration is malformed: {error}")));
        }
        let index = self.find(&registration.cluster)?;
        self.seats[index].check(&registration)?;
        self.agree(&registration)?;
        self.seats[index].registration = Some(registration);
        Ok(index)
    }

    /// Data crosses between clusters unchanged, so they must lay it out alike.
    fn agree(&self, new: &Registration) -> Result<(), Refusal> {
        let Some(first) = self.seats.iter().find_map(|seat| seat.registration.as_ref()) else {
            return Ok(());
        };
        if first.data_model == new.data_model {
            return Ok(());
        }
        let reason = format!(
            "clusters `{}` ({}) and `{}` ({}) lay out data differently, which is not supported \
             yet: run all clusters on machines and compilers of one kind",
            first.cluster, first.data_model, new.cluster, new.data_model
        );
        Err(Refusal { reason, fatal: true })
    }
}

impl Seat {
    fn progress(&self) -> Progress {
        let counted = self.registration.as_ref().and_then(|r| u32::try_from(r.procs.len()).ok());
        Progress {
            name: self.expected.name.clone(),
            ranks: counted.or(self.expected.ranks),
            to_join: self.expected.joins && self.joined.is_none(),
            registered: self.registration.is_some(),
        }
    }

    fn check(&self, new: &Registration) -> Result<(), Refusal> {
        let name = &new.cluster;
        let place = new
            .procs
            .first()
            .map_or_else(String::new, |first| format!("{} (pid {})", first.host, first.pid));
        if let Some(first) = self.registration.as_ref().and_then(|r| r.procs.first()) {
            return Err(refuse(format!(
                "cluster `{name}` has come up twice, on {} (pid {}) and on {place}: two clusters \
                 have one name, a rank started another MPI program, or the launcher does not \
                 belong to the program's MPI, so that each process believes to be alone",
                first.host, first.pid
            )));
        }
        match self.expected.ranks {
            Some(ranks) if ranks as usize != new.procs.len() => {
                let reason = wrong_count(name, ranks, new.procs.len());
                Err(Refusal { reason, fatal: true })
            }
            _ => Ok(()),
        }
    }
}

fn wrong_count(name: &ClusterName, expected: u32, got: usize) -> String {
    let remedy = if got == 1 {
        "Each process believes to be alone: the launcher does not belong to the MPI that the \
         program is linked with. Use that MPI's own mpiexec, or a program built for this one"
    } else {
        "Make `ranks` of the job file (or --cluster NAME=LAUNCHER:RANKS) and the launcher's own \
         arguments agree"
    };
    format!("cluster `{name}` was to have {expected} ranks, but its MPI has {got}. {remedy}")
}

fn refuse(reason: String) -> Refusal {
    Refusal { reason, fatal: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::sample;

    fn roster(clusters: &[(&str, Option<u32>, bool)]) -> Roster {
        let expect = |&(name, ranks, joins): &(&str, Option<u32>, bool)| Expected {
            name: ClusterName::new(name).unwrap(),
            ranks,
            joins,
            interface: None,
        };
        Roster::new(clusters.iter().map(expect).collect())
    }

    fn request(cluster: &str) -> JoinRequest {
        JoinRequest { cluster: ClusterName::new(cluster).unwrap(), host: "h".into(), pid: 9 }
    }

    #[test]
    fn the_table_has_the_order_of_the_job_not_of_arrival() {
        let mut roster = roster(&[("a", Some(2), false), ("b", None, false)]);
        roster.register(sample("b", 3)).unwrap();
        assert!(roster.table(JobId([0; 16]), &NetworkInfo::default()).is_none());
        roster.register(sample("a", 2)).unwrap();
        let table = roster.table(JobId([0; 16]), &NetworkInfo::default()).unwrap();
        let names: Vec<_> = table.clusters.iter().map(|c| c.cluster.as_str()).collect();
        assert_eq!((names, table.size()), (vec!["a", "b"], 5));
    }

    #[test]
    fn a_wrong_rank_count_is_fatal_and_singletons_are_recognized() {
        let mut roster = roster(&[("a", Some(4), false)]);
        let three = roster.register(sample("a", 3)).unwrap_err();
        assert!(three.fatal && three.reason.contains("4 ranks") && three.reason.contains("has 3"));
        let one = roster.register(sample("a", 1)).unwrap_err();
        assert!(one.fatal && one.reason.contains("does not belong"), "{}", one.reason);
    }

    #[test]
    fn unknown_clusters_and_second_comers_are_refused_without_harm() {
        let mut roster = roster(&[("a", None, false), ("b", None, false)]);
        let unknown = roster.register(sample("c", 1)).unwrap_err();
        assert!(!unknown.fatal && unknown.reason.contains("a, b"), "{}", unknown.reason);
        roster.register(sample("a", 1)).unwrap();
        let twice = roster.register(sample("a", 1)).unwrap_err();
        assert!(!twice.fatal && twice.reason.contains("twice"), "{}", twice.reason);
    }

    #[test]
    fn differing_data_models_name_both_clusters() {
        let mut roster = roster(&[("a", None, false), ("b", None, false)]);
        roster.register(sample("a", 1)).unwrap();
        let mut other = sample("b", 1);
        other.data_model.long = 4;
        let refusal = roster.register(other).unwrap_err();
        assert!(refusal.fatal);
        for part in ["`a`", "`b`", "long 4 bytes", "long 8 bytes"] {
            assert!(refusal.reason.contains(part), "{}", refusal.reason);
        }
    }

    #[test]
    fn only_clusters_that_are_to_join_may_join_and_only_once() {
        let mut roster = roster(&[("a", None, false), ("b", None, true)]);
        assert!(roster.join(request("a")).unwrap_err().reason.contains("launcher = \"join\""));
        assert!(roster.join(request("x")).unwrap_err().reason.contains("no cluster"));
        assert!(roster.progress()[1].to_join);
        assert_eq!(roster.join(request("b")), Ok(1));
        assert!(!roster.progress()[1].to_join);
        assert!(roster.join(request("b")).unwrap_err().reason.contains("already joined"));
    }
}
