//! What is told to the user.

use crate::facts::Node;
use serde::Serialize;
use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A job will not work.
    Error,
    /// A job will be slow, or fails at times.
    Warning,
    /// Worth knowing.
    Note,
    /// Looked at, and well.
    Ok,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
            Self::Ok => "ok",
        })
    }
}

/// Where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Of this cluster, where no node is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// At this node, or seen from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Node>,
    /// On the way to this node, relay, interface or cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = match (&self.node, &self.cluster) {
            (Some(node), _) => node.to_string(),
            (None, Some(cluster)) => cluster.clone(),
            (None, None) => String::new(),
        };
        match &self.hop {
            Some(hop) if at.is_empty() => f.write_str(hop),
            Some(hop) => write!(f, "{at} → {hop}"),
            None => f.write_str(&at),
        }
    }
}

impl Place {
    /// A machine.
    pub(crate) fn at(node: &Node) -> Self {
        Self { node: Some(node.clone()), ..Self::default() }
    }

    /// The way from one to something else.
    pub(crate) fn way(from: &Node, to: impl fmt::Display) -> Self {
        Self { hop: Some(to.to_string()), ..Self::at(from) }
    }

    /// Between two clusters.
    pub(crate) fn link(a: &str, b: &str) -> Self {
        Self { cluster: Some(a.to_owned()), hop: Some(b.to_owned()), node: None }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Its name, the same in every release.
    pub code: &'static str,
    /// What it is.
    pub what: String,
    /// Where; several places where it is the same everywhere.
    pub places: Vec<Place>,
    /// What shows it, at the first place.
    pub evidence: String,
    /// What to do, as exactly as we know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Lines that the remedy has written into a file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        code: &'static str,
        place: Place,
        what: impl Into<String>,
        evidence: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            code,
            what: what.into(),
            places: vec![place],
            evidence: evidence.into(),
            remedy: None,
            lines: Vec::new(),
        }
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// What the job file is to say of a link.
    pub(crate) fn of_link(self, [a, b]: [&str; 2], setting: String) -> Self {
        let between = format!("between = [\"{a}\", \"{b}\"]");
        self.written(["[[link]]".to_owned(), between, setting])
    }

    pub(crate) fn written(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.lines.extend(lines);
        self
    }
}
