//! Faults, in words and as a value; and which of them are at work. No I/O, no clock.

use crate::firewall;
use crate::plan::{self, Found, Node, Role};
use crate::spec::Spec;
use gridmpi_report::units::parse_fraction;
use std::time::Duration;

/// Longest text that processes are looked for by, bytes.
pub const MAX_PATTERN: usize = 1_000;

/// What is said of a fault that would end as it begins.
pub(crate) const TOO_SHORT: &str = "a fault must last longer than 0";

/// What can be done to a running lab. Links are indices of [`Spec::links`], nodes of
/// [`plan::nodes`].
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// It lasts until its time is over or it is undone.
    Lasting(Lasting),
    /// TCP connections that nodes of `from` have with nodes of `to` are broken off.
    Reset {
        /// Those that are made to.
        from: Vec<usize>,
        /// Those they are connected with.
        to: Vec<usize>,
    },
    /// Processes of a node whose command line has this text in it are killed.
    Kill {
        /// The node.
        node: usize,
        /// The text, not empty.
        pattern: String,
    },
    /// NAT and firewall of a gateway forget every connection, as when such a device is started anew.
    Forget {
        /// The gateway.
        node: usize,
    },
    /// A machine gets another address towards the wide area, or its first again.
    Renumber {
        /// The machine.
        node: usize,
    },
    /// What is at work ends: of one link or node, or everything.
    Restore(Option<Target>),
}

/// A fault that lasts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lasting {
    /// A link loses everything.
    Cut {
        /// Which.
        link: usize,
    },
    /// A link loses packets at random, beside what it loses anyway.
    Loss {
        /// Which.
        link: usize,
        /// How probably.
        probability: f64,
    },
    /// Nothing leaves or reaches a node.
    Silence {
        /// Which.
        node: usize,
    },
}

/// What a lasting fault is done to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A link.
    Link(usize),
    /// A node.
    Node(usize),
}

impl Fault {
    /// Reads `cut a-b`, `loss a-b 1%`, `silence NODE`, `reset FROM TO`, `kill NODE TEXT...`, `forget GATEWAY`, `renumber NODE`,
    /// `restore [a-b | NODE]`.
    ///
    /// # Errors
    /// Says what is wrong, and what there is.
    pub fn read(words: &[&str], spec: &Spec) -> Result<Self, String> {
        match words {
            ["cut", link] => Ok(Self::Lasting(Lasting::Cut { link: read_link(link, spec)? })),
            ["loss", link, rest @ ..] if !rest.is_empty() => {
                let link = read_lossy(link, spec)?;
                let probability = parse_fraction(&rest.join(" ")).map_err(|e| e.to_string())?;
                Ok(Self::Lasting(Lasting::Loss { link, probability }))
            }
            ["silence", node] => {
                Ok(Self::Lasting(Lasting::Silence { node: read_node(node, spec)? }))
            }
            ["reset", from, to] => read_reset(from, to, spec),
            ["kill", node, text @ ..] if !text.is_empty() => {
                let (node, pattern) = (read_node(node, spec)?, text.join(" "));
                if pattern.len() > MAX_PATTERN || pattern.trim().is_empty() {
                    return Err(format!(
                        "kill: give a text of 1 to {MAX_PATTERN} bytes that the command line has in it"
                    ));
                }
                Ok(Self::Kill { node, pattern })
            }
            ["forget", node] => read_forgetful(node, spec),
            ["renumber", node] => read_renumbered(node, spec),
            ["restore"] => Ok(Self::Restore(None)),
            ["restore", what] => read_target(what, spec).map(|target| Self::Restore(Some(target))),
            _ => Err(format!(
                "`{}` is no fault: cut A-B, loss A-B 1%, silence NODE, reset FROM TO, kill NODE TEXT, forget GATEWAY, renumber NODE, restore [A-B | NODE]",
                words.join(" ")
            )),
        }
    }

    /// Whether it can be asked for a time.
    #[must_use]
    pub fn lasts(&self) -> bool {
        matches!(self, Self::Lasting(_))
    }
}

impl Lasting {
    /// What it is done to.
    #[must_use]
    pub fn target(&self) -> Target {
        match *self {
            Self::Cut { link } | Self::Loss { link, .. } => Target::Link(link),
            Self::Silence { node } => Target::Node(node),
        }
    }

    /// As it is read.
    #[must_use]
    pub fn words(&self, spec: &Spec) -> String {
        match self {
            Self::Cut { link } => format!("cut {}", plan::link_name(spec, *link)),
            Self::Loss { link, probability } => {
                // Exactly what was asked for, without what binary fractions add.
                let percent = (probability * 1e8).round() / 1e6;
                format!("loss {} {percent} %", plan::link_name(spec, *link))
            }
            Self::Silence { node } => {
                let name = plan::nodes(spec).get(*node).map(|node| node.name.clone());
                format!("silence {}", name.unwrap_or_default())
            }
        }
    }
}

/// Names of clusters may hold `-`: every way of joining two names is tried.
fn links_called(name: &str, spec: &Spec) -> Vec<usize> {
    let is_called = |link: &usize| {
        let (a, b) = spec.links[*link].between;
        let (a, b) = (spec.site_name(a), spec.site_name(b));
        name == format!("{a}-{b}") || name == format!("{b}-{a}")
    };
    (0..spec.links.len()).filter(is_called).collect()
}

pub(crate) fn read_link(name: &str, spec: &Spec) -> Result<usize, String> {
    match links_called(name, spec).as_slice() {
        [link] => Ok(*link),
        [] => {
            let names: Vec<_> = (0..spec.links.len()).map(|l| plan::link_name(spec, l)).collect();
            Err(format!("no link `{name}`: {}", names.join(", ")))
        }
        _ => Err(format!("several links may be called `{name}`: rename a cluster")),
    }
}

fn read_lossy(name: &str, spec: &Spec) -> Result<usize, String> {
    let link = read_link(name, spec)?;
    if spec.links[link].emulate {
        return Ok(link);
    }
    Err(format!(
        "the link {name} is a plain cable, which loses nothing: write `emulate = true` in its [[link]]"
    ))
}

fn read_node(name: &str, spec: &Spec) -> Result<usize, String> {
    match plan::find(spec, &plan::nodes(spec), name, None)? {
        Found::Node(index) => Ok(index),
        Found::Head => Err("the lab's own head is no part of any fault".to_owned()),
    }
}

/// Whether a machine has a NAT or firewall that remembers connections.
pub(crate) fn can_forget(node: &Node, spec: &Spec) -> bool {
    let private = spec.private(node.cluster).filter(|_| node.role == Role::Gateway);
    private.is_some_and(|private| firewall::rules(private, node.number).is_some())
}

fn read_forgetful(name: &str, spec: &Spec) -> Result<Fault, String> {
    let node = read_node(name, spec)?;
    if plan::nodes(spec).get(node).is_some_and(|found| can_forget(found, spec)) {
        return Ok(Fault::Forget { node });
    }
    Err(format!(
        "forget: {name} remembers no connections: name a gateway with `nat = true` or `firewall = \"outbound\"`"
    ))
}

fn read_renumbered(name: &str, spec: &Spec) -> Result<Fault, String> {
    let node = read_node(name, spec)?;
    if plan::nodes(spec).get(node).is_some_and(|found| found.wan().is_some()) {
        return Ok(Fault::Renumber { node });
    }
    Err(format!("renumber: {name} has no address towards the wide area: name its gateway"))
}

fn read_target(name: &str, spec: &Spec) -> Result<Target, String> {
    match read_link(name, spec) {
        Ok(link) => Ok(Target::Link(link)),
        Err(no_link) => read_node(name, spec)
            .map(Target::Node)
            .map_err(|no_node| format!("{no_link}; {no_node}")),
    }
}

/// A cluster stands for all its machines.
fn read_several(name: &str, spec: &Spec) -> Result<Vec<usize>, String> {
    let nodes = plan::nodes(spec);
    if let Some(site) = (0..spec.sites()).find(|site| spec.site_name(*site) == name) {
        return Ok((0..nodes.len()).filter(|node| nodes[*node].cluster == site).collect());
    }
    read_node(name, spec).map(|node| vec![node])
}

fn read_reset(from: &str, to: &str, spec: &Spec) -> Result<Fault, String> {
    let (from, to) = (read_several(from, spec)?, read_several(to, spec)?);
    if from == to {
        return Err("reset: name two different nodes or clusters".to_owned());
    }
    Ok(Fault::Reset { from, to })
}

/// The addresses under which `from` sees `to`: through NAT a node is its gateway.
#[must_use]
pub fn addresses(spec: &Spec, nodes: &[Node], from: &Node, to: &Node) -> Vec<std::net::Ipv4Addr> {
    let is_near = from.cluster == to.cluster || spec.private(to.cluster).is_none();
    let lan = to.lan().filter(|_| is_near);
    let hidden = to.wan().is_none() && !is_near;
    let way_out = plan::way_out(spec, nodes, to.cluster).filter(|_| hidden).and_then(Node::wan);
    let other = to.other_wan();
    [lan, to.wan(), other, way_out].into_iter().flatten().collect()
}

/// The faults that are at work. Times are of any clock that does not go back.
#[derive(Debug, Default)]
pub struct Active(Vec<(Lasting, Option<Duration>)>);

impl Active {
    /// One begins at `now`.
    pub fn begin(&mut self, fault: Lasting, now: Duration, lasts: Option<Duration>) {
        self.0.push((fault, lasts.map(|lasts| now.saturating_add(lasts))));
    }

    /// Takes out those whose time is over.
    pub fn expire(&mut self, now: Duration) -> Vec<Lasting> {
        self.take(|_, until| until.is_some_and(|until| until <= now))
    }

    /// Takes out those of one target, or all.
    pub fn restore(&mut self, target: Option<Target>) -> Vec<Lasting> {
        self.take(|fault, _| target.is_none_or(|target| fault.target() == target))
    }

    fn take(&mut self, ends: impl Fn(&Lasting, &Option<Duration>) -> bool) -> Vec<Lasting> {
        let (gone, left) = self.0.iter().partition(|(fault, until)| ends(fault, until));
        self.0 = left;
        let gone: Vec<(Lasting, Option<Duration>)> = gone;
        gone.into_iter().map(|(fault, _)| fault).collect()
    }

    /// All of them.
    pub fn faults(&self) -> impl Iterator<Item = &Lasting> {
        self.0.iter().map(|(fault, _)| fault)
    }

    /// When the next one ends by itself.
    #[must_use]
    pub fn next_end(&self) -> Option<Duration> {
        self.0.iter().filter_map(|(_, until)| *until).min()
    }

    /// How probably a link loses a packet, beside what it loses anyway.
    #[must_use]
    pub fn loss(&self, link: usize) -> f64 {
        let passes = self.faults().map(|fault| match fault {
            Lasting::Cut { link: cut } if *cut == link => 0.0,
            Lasting::Loss { link: lossy, probability } if *lossy == link => 1.0 - probability,
            _ => 1.0,
        });
        1.0 - passes.product::<f64>()
    }

    /// Whether a link loses everything.
    #[must_use]
    pub fn is_cut(&self, link: usize) -> bool {
        self.faults().any(|fault| *fault == Lasting::Cut { link })
    }

    /// Whether a node is silent.
    #[must_use]
    pub fn is_silent(&self, node: usize) -> bool {
        self.faults().any(|fault| *fault == Lasting::Silence { node })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAB: &str = "[[cluster]]\nname = \"a\"\nnodes = 2\nprivate = true\nnat = true\n\
                       [[cluster]]\nname = \"a-b\"\nnodes = 1\n[[host]]\nname = \"b-c\"\n[[host]]\nname = \"c\"\n\
                       [[link]]\ndelay = \"1 ms\"\n[[link]]\nbetween = [\"a\", \"c\"]\n";

    fn spec() -> Spec {
        Spec::parse(LAB, "t", "t").unwrap()
    }

    fn read(text: &str) -> Result<Fault, String> {
        Fault::read(&text.split_whitespace().collect::<Vec<_>>(), &spec())
    }

    #[test]
    fn faults_are_read() {
        assert_eq!(read("cut a-b-a"), Ok(Fault::Lasting(Lasting::Cut { link: 1 })));
        let loss = Fault::Lasting(Lasting::Loss { link: 1, probability: 0.01 });
        assert_eq!((read("loss a-a-b 1%"), read("loss a-b-a 1 %")), (Ok(loss.clone()), Ok(loss)));
        assert_eq!(read("silence a-gw1"), Ok(Fault::Lasting(Lasting::Silence { node: 2 })));
        assert_eq!(read("reset a c"), Ok(Fault::Reset { from: vec![0, 1, 2, 3], to: vec![6] }));
        let pattern = "gridmpi relay".to_owned();
        assert_eq!(read("kill a-gw1 gridmpi relay"), Ok(Fault::Kill { node: 2, pattern }));
        assert_eq!(read("forget a-gw1"), Ok(Fault::Forget { node: 2 }));
        assert_eq!(read("renumber a-gw1"), Ok(Fault::Renumber { node: 2 }));
        assert_eq!(read("restore"), Ok(Fault::Restore(None)));
        assert_eq!(read("restore c"), Ok(Fault::Restore(Some(Target::Node(6)))));
    }

    #[test]
    fn errors_say_what_there_is() {
        for (text, why) in [
            ("", "is no fault"),
            ("cut", "is no fault"),
            ("cut x-y", "no link `x-y`: a-c, "),
            ("cut a-b-c", "several links"),
            ("loss a-c 1%", "write `emulate = true`"),
            ("loss a-a-b 2", "`2` is not a fraction"),
            ("silence head", "no part of any fault"),
            ("silence x", "no node `x`: head, a1"),
            ("reset c c", "two different"),
            ("kill c", "is no fault"),
            ("forget c", "remembers no connections"),
            ("forget a1", "remembers no connections"),
            ("renumber a1", "has no address"),
            ("restore x", "no link `x`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_node_behind_nat_is_its_gateway() {
        let spec = spec();
        let nodes = plan::nodes(&spec);
        let of = |from: usize, to: usize| {
            let all = addresses(&spec, &nodes, &nodes[from], &nodes[to]);
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(6, 0), "10.100.1.1");
        assert_eq!(of(1, 0), "10.1.0.1");
        assert_eq!(of(0, 6), "10.100.4.1 10.100.132.1");
        assert_eq!(of(0, 4), "10.2.0.1 10.100.2.1 10.100.130.1");
    }

    #[test]
    fn faults_add_up_and_end() {
        let second = Duration::from_secs;
        let mut active = Active::default();
        active.begin(Lasting::Loss { link: 0, probability: 0.5 }, second(1), Some(second(4)));
        active.begin(Lasting::Loss { link: 0, probability: 0.5 }, second(1), None);
        active.begin(Lasting::Cut { link: 1 }, second(1), Some(second(2)));
        active.begin(Lasting::Silence { node: 3 }, second(1), None);
        assert_eq!((active.loss(0), active.loss(1), active.loss(2)), (0.75, 1.0, 0.0));
        assert!(active.is_cut(1) && !active.is_cut(0) && active.is_silent(3));
        assert_eq!(active.next_end(), Some(second(3)));
        assert_eq!(active.expire(second(2)), []);
        assert_eq!(active.expire(second(3)), [Lasting::Cut { link: 1 }]);
        assert_eq!(active.restore(Some(Target::Node(3))), [Lasting::Silence { node: 3 }]);
        assert_eq!(active.expire(second(9)).len(), 1);
        assert_eq!((active.loss(0), active.next_end()), (0.5, None));
        assert_eq!(active.restore(None).len(), 1);
        assert_eq!(active.loss(0), 0.0);
    }

    proptest! {
        #[test]
        fn reading_is_total(text in "(cut|loss|silence|reset|kill|forget|renumber|restore)?[ a-c0-9%.-]{0,20}") {
            let _ = read(&text);
        }
    }
}
