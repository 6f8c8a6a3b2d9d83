//! From one node to another.

use super::machine::choose;
use super::{KEEP_ALIVE_S, buffers, machine_of};
use crate::facts::{Attempt, Bulk, Depth, Facts, Kind, Machine, Node, Outcome, Path};
use crate::finding::{Finding, Place, Severity};
use gridmpi_report::units::format_duration;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Clocks farther apart than this can make a certificate seem not yet valid.
const CLOCK_FAR_US: u64 = 5_000_000;
/// And farther than this make logs hard to compare.
const CLOCK_APART_US: u64 = 50_000;

/// How strict all interfaces are at least.
const ALL_FILTERS: &str = "net.ipv4.conf.all.rp_filter";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    facts.paths.iter().flat_map(|path| one(path, facts)).collect()
}

fn one(path: &Path, facts: &Facts) -> Vec<Finding> {
    let ends =
        Ends { path, from: machine_of(facts, &path.from), to: machine_of(facts, &path.to), facts };
    let mut all = ends.wrong_machines();
    match ends.reached() {
        None => all.push(ends.unreached()),
        Some(index) => {
            all.extend(ends.late(index));
            all.extend(ends.trap(&path.visit.attempts[index]));
        }
    }
    if let Some(depth) = &path.visit.depth {
        let mut more = ends.depth(depth);
        let is_well = all.is_empty() && more.is_empty();
        more.extend(is_well.then(|| ends.well(depth)));
        all.extend(more);
    }
    all.extend(super::idle::judge(&path.idle, Place::way(&path.from, &path.to)));
    all
}

/// A path, and what is known of the machines at its ends.
struct Ends<'a> {
    path: &'a Path,
    from: Option<&'a Machine>,
    to: Option<&'a Machine>,
    facts: &'a Facts,
}

impl Ends<'_> {
    fn place(&self) -> Place {
        Place::way(&self.path.from, &self.path.to)
    }

    /// Which address leads there.
    fn reached(&self) -> Option<usize> {
        let is_reached = |attempt: &Attempt| attempt.outcome == Outcome::Reached;
        self.path.visit.attempts.iter().position(is_reached)
    }

    /// Addresses that count: a machine's loopback leads nobody else there.
    fn outer(&self) -> impl Iterator<Item = &Attempt> {
        self.path.visit.attempts.iter().filter(|attempt| !attempt.address.ip().is_loopback())
    }

    fn listed(&self) -> String {
        self.outer().map(described).collect::<Vec<_>>().join("; ")
    }

    /// Somebody else answers.
    fn wrong_machines(&self) -> Vec<Finding> {
        let wrong = |attempt: &Attempt| {
            let who = match &attempt.outcome {
                Outcome::Other(node) => format!("node {node}"),
                Outcome::Oneself => format!("{} itself", self.path.from),
                Outcome::Stranger(what) => format!("something that {what}"),
                _ => return None,
            };
            let ip = attempt.address.ip();
            let what = format!(
                "{who} answers at {}, an address that {} tells as its own",
                attempt.address, self.path.to
            );
            let severity =
                if self.reached().is_some() { Severity::Warning } else { Severity::Error };
            let evidence = format!("the kernel sends to {ip} {}", by(attempt));
            let finding = Finding::new(severity, "other-machine", self.place(), what, evidence);
            Some(finding.remedy(self.other_interface(ip)))
        };
        self.outer().filter_map(wrong).collect()
    }

    /// How the far cluster is told to use another interface than the one with `ip`.
    fn other_interface(&self, ip: IpAddr) -> String {
        let cards = self.to.iter().flat_map(|machine| &machine.interfaces);
        let is_other = |one: &&crate::facts::Interface| {
            one.kind == Kind::Card
                && one.is_up
                && one.addresses.iter().any(|(own, _)| *own != ip && own.is_ipv4() == ip.is_ipv4())
                && one.addresses.iter().all(|(own, _)| *own != ip)
        };
        match cards.into_iter().find(is_other) {
            Some(other) => choose(&self.path.to.cluster, &other.name),
            None => {
                "give one of the two another address, or join the clusters by relays".to_owned()
            }
        }
    }

    /// No address leads there.
    fn unreached(&self) -> Finding {
        let (evidence, place) = (self.listed(), self.place());
        let Some(first) = self.outer().min_by_key(|attempt| telling(&attempt.outcome)) else {
            let what = "it tells no address that another machine could reach";
            return Finding::new(Severity::Error, "no-address", place, what, evidence).remedy(
                "ip link set dev NAME up on that node, or name its `interface` in the job file",
            );
        };
        let other_way =
            if self.is_other_way_open() { "; the other way connections are made" } else { "" };
        let error = |code, what: &str| {
            Finding::new(
                Severity::Error,
                code,
                place.clone(),
                format!("{what}{other_way}"),
                evidence.clone(),
            )
        };
        let ip = first.address.ip();
        if let Some(own) = self.from.and_then(|machine| machine.with(ip)).filter(|_| self.are_two())
        {
            let what = format!(
                "{} itself has this address ({}): connections do not leave it",
                self.path.from, own.name
            );
            return error("refused", &what).remedy(self.other_interface(ip));
        }
        if first.outcome == Outcome::Silent && self.has_no_way_back() {
            let what = format!("connections get no answer, as {} has no way back", self.path.to);
            return Finding::new(Severity::Note, "silent", place, what, evidence);
        }
        let let_in = || self.let_in(first);
        match &first.outcome {
            Outcome::Silent => self.or_one_way(
                error("silent", "connections get no answer: a firewall drops them, or there is no way back")
                    .remedy(let_in() + &self.strict(ip)),
            ),
            Outcome::Refused => self.or_one_way(
                error("refused", "connections are refused: a firewall rejects them, or another machine has this address")
                    .remedy(let_in()),
            ),
            Outcome::Rejected(_) => self.or_one_way(
                error("refused", "connections are rejected: a firewall lets none through, or a router has no way on")
                    .remedy(let_in() + &self.router_on(ip, first)),
            ),
            Outcome::NoWay(_) => self.or_one_way(
                error("no-route", "there is no way to the other node").remedy(self.route_to(ip, first)),
            ),
            Outcome::Mute => error("mute", "connections are taken, but nothing is said on them: something between the two takes them itself")
                .remedy("look for a proxy or load balancer on the way, or join the clusters by relays"),
            _ => error("unreached", "only other machines answer").remedy(self.other_interface(ip)),
        }
    }

    /// Whether the ends are two machines.
    fn are_two(&self) -> bool {
        match (self.from, self.to) {
            (Some(from), Some(to)) => !from.is_same(to),
            _ => self.path.from.host != self.path.to.host,
        }
    }

    fn other_way(&self) -> Option<&Path> {
        let is_other = |path: &&Path| path.from == self.path.to && path.to == self.path.from;
        self.facts.paths.iter().find(is_other)
    }

    fn is_other_way_open(&self) -> bool {
        self.other_way().is_some_and(|path| path.visit.depth.is_some())
    }

    /// Connections in the open direction are enough, if the job knows.
    fn or_one_way(&self, finding: Finding) -> Finding {
        if !self.is_other_way_open() {
            return finding;
        }
        let (a, b) = (&self.path.from.cluster, &self.path.to.cluster);
        let remedy = finding.remedy.as_deref().unwrap_or_default();
        let remedy =
            format!("{remedy}; or let only `{b}` connect: in the job file the lines below");
        finding.remedy(remedy).of_link([a, b], format!("dial = \"{b}\""))
    }

    /// The far node itself finds no way to here: that is the news, and told of it.
    fn has_no_way_back(&self) -> bool {
        let is_none = |attempt: &Attempt| matches!(attempt.outcome, Outcome::NoWay(_));
        let mut outer = self
            .other_way()
            .into_iter()
            .flat_map(|path| &path.visit.attempts)
            .filter(|attempt| !attempt.address.ip().is_loopback())
            .peekable();
        outer.peek().is_some() && outer.all(is_none)
    }

    /// The rule that lets the dialer's network in at the far end.
    fn let_in(&self, attempt: &Attempt) -> String {
        let source = self.source_network(attempt);
        let tool = self.to.and_then(|machine| machine.firewall.as_deref()).unwrap_or("iptables");
        let (ip, six) = if source.contains(':') { ("ip6", "6") } else { ("ip", "") };
        let rule = match tool {
            "firewall-cmd" => format!(
                "firewall-cmd --permanent --zone=trusted --add-source={source} && firewall-cmd --reload"
            ),
            "ufw" => format!("ufw allow proto tcp from {source}"),
            "nft" => format!(
                "nft insert rule inet filter input {ip} saddr {source} meta l4proto tcp accept"
            ),
            _ => format!("ip{six}tables -I INPUT -p tcp -s {source} -j ACCEPT"),
        };
        format!(
            "on {} (and on routers between): {rule}. Where that may not be: relays",
            nodes(&self.path.to)
        )
    }

    /// The network that the dialer's packets come from.
    fn source_network(&self, attempt: &Attempt) -> String {
        let Some(source) = attempt.route.source else { return "NETWORK".to_owned() };
        let all = self.from.iter().flat_map(|machine| &machine.interfaces);
        let own = all.flat_map(|one| &one.addresses).find(|(ip, _)| *ip == source);
        own.map_or_else(|| source.to_string(), |(ip, bits)| network(*ip, *bits))
    }

    /// A far end that drops what comes by an interface that it would not answer by.
    fn strict(&self, ip: IpAddr) -> String {
        self.to.and_then(|machine| strict_filter(machine, ip)).map_or_else(String::new, |name| {
            format!(
                "; and if packets come there by another interface than answers leave by: on {}: sysctl -w {name}=2",
                nodes(&self.path.to)
            )
        })
    }

    /// The network of an address of the far end's.
    fn far_network(&self, ip: IpAddr) -> String {
        let has = self
            .to
            .and_then(|machine| machine.with(ip)?.addresses.iter().find(|(own, _)| *own == ip));
        has.map_or_else(|| ip.to_string(), |(ip, bits)| network(*ip, *bits))
    }

    /// Where there is a router, it may be the one that says no.
    fn router_on(&self, ip: IpAddr, attempt: &Attempt) -> String {
        attempt.route.gateway.map_or_else(String::new, |gateway| {
            format!("; and see that {gateway} has a way on to {}", self.far_network(ip))
        })
    }

    fn route_to(&self, ip: IpAddr, attempt: &Attempt) -> String {
        let network = self.far_network(ip);
        let gateway = attempt
            .route
            .gateway
            .map_or_else(|| "GATEWAY".to_owned(), |gateway| gateway.to_string());
        let dev = attempt.route.interface.as_deref().unwrap_or("INTERFACE");
        if attempt.route.interface.is_some() {
            format!(
                "on {}: see that {gateway} forwards to {network} (`ip route get {ip}` sends it by {dev}), or join the clusters by relays",
                self.path.from
            )
        } else {
            format!(
                "on {}: ip route add {network} via GATEWAY dev {dev}; or join the clusters by relays",
                self.path.from
            )
        }
    }

    /// Addresses that cost time before the one that leads there.
    fn late(&self, reached: usize) -> Option<Finding> {
        let before = &self.path.visit.attempts[..reached];
        let is_slow =
            |attempt: &&Attempt| matches!(attempt.outcome, Outcome::Silent | Outcome::Mute);
        let slow = before.iter().find(is_slow)?;
        let works = self.path.visit.attempts[reached].address;
        let named = |at: SocketAddr| {
            let of = self.to.and_then(|machine| machine.with(at.ip()));
            of.map_or_else(
                || at.ip().to_string(),
                |interface| format!("{} ({})", interface.name, at.ip()),
            )
        };
        let what = format!(
            "{} is tried first and gets no answer: each first connection waits for it",
            named(slow.address)
        );
        let finding =
            Finding::new(Severity::Warning, "slow-first", self.place(), what, self.listed());
        let interface = self.to.and_then(|machine| machine.with(works.ip()));
        Some(finding.remedy(match interface {
            Some(interface) => choose(&self.path.to.cluster, &interface.name),
            None => format!(
                "interface = \"{}\" of cluster `{}` in the job file",
                works.ip(),
                self.path.to.cluster
            ),
        }))
    }

    /// The way leads over an interface that seldom is the one meant.
    fn trap(&self, reached: &Attempt) -> Option<Finding> {
        let name = reached.route.interface.as_deref()?;
        let interface = self.from?.interfaces.iter().find(|one| one.device() == name)?;
        let (severity, what) = match interface.kind {
            Kind::Containers => (
                Severity::Warning,
                format!("traffic leaves by {name}, which leads to containers of this machine"),
            ),
            Kind::Tunnel => (
                Severity::Note,
                format!(
                    "traffic leaves through the tunnel {name}: its rate and its largest packet are those of the tunnel"
                ),
            ),
            // Two clusters on one machine.
            Kind::Loopback => return None,
            _ => return self.unlike_wanted(name, reached),
        };
        let evidence = format!("ip route get {}", reached.address.ip());
        let finding = Finding::new(severity, "trap-route", self.place(), what, evidence);
        Some(finding.remedy(format!(
            "on {}: ip route add {} via GATEWAY dev INTERFACE, if another way was meant",
            self.path.from,
            alone(reached.address.ip())
        )))
    }

    /// The job names an interface, and packets leave by another.
    fn unlike_wanted(&self, name: &str, reached: &Attempt) -> Option<Finding> {
        let machine = self.from?;
        let wanted = machine.wanted.as_deref()?;
        let is_told = |one: &&crate::facts::Interface| {
            machine.told.iter().any(|at| one.addresses.iter().any(|(ip, _)| *ip == at.ip()))
        };
        let mut chosen = machine.interfaces.iter().filter(is_told).peekable();
        let first = *chosen.peek()?;
        if chosen.any(|one| one.device() == name) {
            return None;
        }
        let what =
            format!("the job names the interface \"{wanted}\", but traffic leaves by {name}");
        let evidence = format!("ip route get {}", reached.address.ip());
        let finding =
            Finding::new(Severity::Warning, "other-interface", self.place(), what, evidence);
        let (to, device) = (reached.address.ip(), first.device());
        // What is on the interface's own network has no router before it.
        let is_near = first.addresses.iter().any(|(own, bits)| {
            own.is_ipv4() == to.is_ipv4() && network(*own, *bits) == network(to, *bits)
        });
        let via = if is_near { "" } else { "via GATEWAY " };
        Some(finding.remedy(format!(
            "on {}: ip route add {} {via}dev {device}",
            self.path.from,
            alone(to)
        )))
    }

    /// What was seen on the connection.
    fn depth(&self, depth: &Depth) -> Vec<Finding> {
        let mut all = Vec::new();
        all.extend(self.black_hole(depth));
        all.extend(broken(depth, &self.place()));
        all.extend(nat(depth, &self.place()));
        // What concerns both directions is told by each of its own; by this one, where the other was not looked at.
        let is_only = !self.is_other_way_open();
        all.extend(clocks(depth, self.path, is_only));
        all.extend(buffers::judge((&self.path.from, &self.path.to), depth, self.facts));
        if is_only {
            all.extend(buffers::judge((&self.path.to, &self.path.from), depth, self.facts));
        }
        all
    }

    fn well(&self, depth: &Depth) -> Finding {
        let trip = format_duration(Duration::from_micros(depth.trip_us.into()));
        let control = depth.congestion.as_deref().unwrap_or("unknown");
        let evidence =
            format!("{} from {}, round trip {trip}, {control}", depth.address, depth.local.ip());
        Finding::new(Severity::Ok, "path", self.place(), "connections are made", evidence)
    }

    /// Told of the direction in which packets go, whichever end has seen it: so both say the same.
    fn black_hole(&self, depth: &Depth) -> Option<Finding> {
        let (from, to) = match (&depth.outward, &depth.inward) {
            (Bulk::Stalled, _) => (&self.path.from, &self.path.to),
            (_, Bulk::Stalled) => (&self.path.to, &self.path.from),
            _ => return None,
        };
        let what = "large packets vanish on the way, and nobody says so: connections are made and then hang";
        let interface = self.from.and_then(|machine| machine.with(depth.local.ip()));
        let now = depth.path_mtu.or_else(|| interface?.mtu);
        let now = now.map_or_else(|| "unknown".to_owned(), |mtu| format!("{mtu} bytes"));
        let passing = match depth.passing {
            Some(mtu) => format!("those of {mtu} bytes pass"),
            None => "none of the sizes tried pass".to_owned(),
        };
        let evidence = format!(
            "of {} and {} 32 KiB did not arrive, small messages do; packets are up to {now}, {passing}",
            depth.local.ip(),
            depth.address.ip(),
        );
        let finding = Finding::new(Severity::Error, "mtu", Place::way(from, to), what, evidence);
        let probing = "sysctl -w net.ipv4.tcp_mtu_probing=1";
        let icmp = "let ICMP \"fragmentation needed\" through on the way";
        let Some(mtu) = depth.passing else {
            return Some(finding.remedy(format!("on both nodes: {probing}; and {icmp}")));
        };
        let shrink = |node: &Node, machine: Option<&Machine>, ip: IpAddr| {
            let interface = machine.and_then(|machine| machine.with(ip));
            let name = interface.map_or("INTERFACE", |interface| interface.device());
            format!("on {}: ip link set dev {name} mtu {mtu}", nodes(node))
        };
        let mut lines = [
            shrink(&self.path.from, self.from, depth.local.ip()),
            shrink(&self.path.to, self.to, depth.address.ip()),
        ];
        lines.sort();
        let lines = lines.join("; ");
        Some(finding.remedy(format!("{lines}; or on both: {probing}; or {icmp}")))
    }
}

/// The setting by which the interface that has `ip` is strict about where packets come from. There is none for IPv6.
fn strict_filter(machine: &Machine, ip: IpAddr) -> Option<String> {
    const STRICT: i64 = 1;
    let of_all = machine.number(ALL_FILTERS).unwrap_or(0);
    let interface = machine.with(ip);
    let own = interface.and_then(|one| one.reverse_path).unwrap_or(0);
    match of_all.max(own) == STRICT && ip.is_ipv4() {
        true if of_all == STRICT => Some(ALL_FILTERS.to_owned()),
        // A dot of the name would part it.
        true => interface
            .map(|one| format!("net.ipv4.conf.{}.rp_filter", one.device().replace('.', "/"))),
        false => None,
    }
}

/// Whom a remedy is for: what is wrong with one node of a cluster is mostly so with all.
pub(super) fn nodes(of: &Node) -> String {
    match of.cluster.as_str() {
        "" | "here" | "there" => of.to_string(),
        cluster => format!("the nodes of `{cluster}`"),
    }
}

fn described(attempt: &Attempt) -> String {
    let how = match &attempt.outcome {
        Outcome::Reached => "answers".to_owned(),
        Outcome::Refused => "refused".to_owned(),
        Outcome::Silent => "no answer".to_owned(),
        Outcome::NoWay(why) | Outcome::Rejected(why) => why.clone(),
        Outcome::Mute => "taken, but nothing said".to_owned(),
        Outcome::Stranger(what) => format!("somebody else: {what}"),
        Outcome::Other(node) => format!("node {node} answers"),
        Outcome::Oneself => "the dialer itself answers".to_owned(),
    };
    format!("{} {}: {how}", attempt.address, by(attempt))
}

fn by(attempt: &Attempt) -> String {
    let route = &attempt.route;
    let by = route.interface.as_ref().map_or_else(String::new, |name| format!("by {name}"));
    let from = route.source.map_or_else(String::new, |source| format!("from {source}"));
    let through = route.gateway.map_or_else(String::new, |gateway| format!("through {gateway}"));
    let words = [by, through, from];
    let words: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "by no interface".to_owned() } else { words.join(" ") }
}

/// Which of several failures is told: what a firewall does tells more than what routes do.
const fn telling(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Reached => 0,
        Outcome::Mute => 1,
        Outcome::Silent => 2,
        Outcome::Refused => 3,
        Outcome::Rejected(_) => 4,
        Outcome::NoWay(_) => 5,
        Outcome::Stranger(_) | Outcome::Other(_) | Outcome::Oneself => 6,
    }
}

/// `10.1.2.3`, 16 → `10.1.0.0/16`.
fn network(ip: IpAddr, bits: u8) -> String {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            format!("{}/{bits}", std::net::Ipv4Addr::from_bits(ip.to_bits() & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            format!("{}/{bits}", std::net::Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
    }
}

/// A network of one address.
fn alone(ip: IpAddr) -> String {
    network(ip, if ip.is_ipv4() { 32 } else { 128 })
}

fn broken(depth: &Depth, place: &Place) -> Option<Finding> {
    let ((Bulk::Broken(why), _) | (_, Bulk::Broken(why))) = (&depth.outward, &depth.inward) else {
        return None;
    };
    let what = "a connection that stood broke when 32 KiB were sent";
    let finding = Finding::new(Severity::Error, "broken", place.clone(), what, why.clone());
    Some(finding.remedy(
        "look for a firewall on the way that inspects connections, and for the far node's own end",
    ))
}

fn nat(depth: &Depth, place: &Place) -> Option<Finding> {
    if depth.seen.ip() == depth.local.ip() {
        return None;
    }
    let what = "addresses are translated on the way (NAT): entries of idle connections are forgotten there after a time";
    let evidence = format!("{} is seen as {}", depth.local, depth.seen);
    let finding = Finding::new(Severity::Note, "nat", place.clone(), what, evidence);
    Some(finding.remedy(format!("`gridmpi doctor --long` finds that time; connections of a job are kept alive each {KEEP_ALIVE_S} s or sooner")))
}

fn clocks(depth: &Depth, path: &Path, is_only: bool) -> Option<Finding> {
    let apart = depth.ahead_us.unsigned_abs();
    // Told once, by the end whose clock is behind, if both look.
    let is_others = depth.ahead_us < 0 && !is_only;
    if apart <= CLOCK_APART_US.saturating_add(depth.ahead_error_us.into()) || is_others {
        return None;
    }
    let ahead = if depth.ahead_us < 0 { &path.from } else { &path.to };
    let severity = if apart > CLOCK_FAR_US { Severity::Warning } else { Severity::Note };
    let show = |us: u64| format_duration(Duration::from_micros(us));
    let what = "the clocks of the two nodes are apart: their logs cannot be compared, and certificates may seem not yet valid";
    let evidence =
        format!("{ahead} is ahead by {} ± {}", show(apart), show(depth.ahead_error_us.into()));
    let finding =
        Finding::new(severity, "clock-offset", Place::way(&path.from, &path.to), what, evidence);
    Some(finding.remedy("on both: timedatectl set-ntp true (or chronyc makestep)"))
}
