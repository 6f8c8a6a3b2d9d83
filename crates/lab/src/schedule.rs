//! Faults drawn at random: the same ones, in the same order, for the same seed and the same lab.

use crate::chance::Numbers;
use crate::control::Ask;
use crate::fault;
use crate::plan::{self, Found, Node, Role};
use crate::spec::Spec;
use std::time::Duration;

/// A kind of fault that can be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A link is cut for a while.
    Cut,
    /// A machine is silent for a while.
    Silence,
    /// Connections from one site's machine to another's are broken off.
    Reset,
    /// A link loses some packets for a while.
    Loss,
    /// Processes of a machine are killed.
    Kill,
    /// NAT and firewall of a gateway forget every connection.
    Forget,
    /// A machine gets another address; public hosts do not, since nobody would find them.
    Renumber,
}

/// What is wanted of the faults.
#[derive(Debug, Clone)]
pub struct Wishes {
    /// Which kinds; each is drawn as often as the others.
    pub kinds: Vec<Kind>,
    /// Links by name; none: all.
    pub links: Vec<String>,
    /// Machines by name; none: gateways and public hosts, or where there are none, all nodes.
    pub machines: Vec<String>,
    /// Mean time from one to the next; it varies by half of it either way.
    pub every: Duration,
    /// What lasts does so for a tenth of this at least, and all of it at most.
    pub lasts: Duration,
    /// How probably a packet is lost.
    pub loss: f64,
    /// What the command lines of processes to be killed have in them.
    pub pattern: Option<String>,
}

/// Draws one fault after the other.
#[derive(Debug)]
pub struct Schedule {
    wishes: Wishes,
    numbers: Numbers,
    machines: Vec<Node>,
    /// Names of links that can be cut, and of those that can lose.
    cut: Vec<String>,
    lossy: Vec<String>,
    /// Names of machines that can forget, and of those that can be renumbered.
    forgetful: Vec<String>,
    movable: Vec<String>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// How long after the one before.
    pub after: Duration,
    /// What to ask the lab for.
    pub ask: Ask,
}

impl Schedule {
    /// For a lab.
    ///
    /// # Errors
    /// Says which wish this lab cannot fulfil, and the remedy.
    pub fn new(spec: &Spec, seed: u64, wishes: Wishes) -> Result<Self, String> {
        let machines = machines(spec, &wishes.machines)?;
        let links = links(spec, &wishes.links)?;
        let names = |links: &[usize]| links.iter().map(|l| plan::link_name(spec, *l)).collect();
        let emulated: Vec<_> = links.iter().copied().filter(|l| spec.links[*l].emulate).collect();
        let (cut, lossy) = (names(&links), names(&emulated));
        let named = |fits: &dyn Fn(&Node) -> bool| -> Vec<String> {
            machines.iter().filter(|node| fits(node)).map(|node| node.name.clone()).collect()
        };
        let forgetful = named(&|node| fault::can_forget(node, spec));
        let movable = named(&|node| node.role != Role::Public && node.wan().is_some());
        let numbers = Numbers::new(seed);
        if wishes.every.is_zero() {
            return Err("--every must be longer than 0".to_owned());
        }
        let schedule = Self { wishes, numbers, machines, cut, lossy, forgetful, movable };
        schedule.wishes.kinds.iter().try_for_each(|kind| schedule.check(*kind))?;
        if schedule.wishes.kinds.is_empty() {
            return Err("say which faults: --kinds cut,silence,reset,loss".to_owned());
        }
        Ok(schedule)
    }

    fn check(&self, kind: Kind) -> Result<(), String> {
        let missing = match kind {
            Kind::Cut if self.cut.is_empty() => "cut: this lab has no link",
            Kind::Loss if self.lossy.is_empty() => {
                "loss: none of these links is emulated: write `emulate = true` in a [[link]]"
            }
            Kind::Reset if self.sites() < 2 => {
                "reset: name machines of two clusters at least by --on"
            }
            Kind::Kill if self.wishes.pattern.is_none() => {
                "kill: say by --pattern what the command line has in it"
            }
            Kind::Forget if self.forgetful.is_empty() => {
                "forget: none of these machines has a NAT or firewall that remembers: name gateways by --on"
            }
            Kind::Renumber if self.movable.is_empty() => {
                "renumber: name machines of clusters with an address towards the wide area by --on"
            }
            _ => return Ok(()),
        };
        Err(missing.to_owned())
    }

    fn sites(&self) -> usize {
        let mut sites: Vec<_> = self.machines.iter().map(|node| node.cluster).collect();
        sites.sort_unstable();
        sites.dedup();
        sites.len()
    }

    /// The next fault.
    pub fn draw(&mut self) -> Step {
        let every = self.wishes.every;
        let after = every / 2 + every.mul_f64(self.fraction());
        let longest = self.wishes.lasts;
        let lasts = (longest / 10 + (longest - longest / 10).mul_f64(self.fraction()))
            .max(Duration::from_millis(1));
        let lasts = Duration::from_millis(u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX));
        let kind = self.numbers.below(self.wishes.kinds.len());
        let kind = self.wishes.kinds.get(kind).copied().unwrap_or(Kind::Cut);
        let loss = format!("{}", self.wishes.loss);
        let pattern = self.wishes.pattern.clone().unwrap_or_default();
        let (words, lasts) = match kind {
            Kind::Cut => (vec!["cut".to_owned(), draw(&mut self.numbers, &self.cut)], Some(lasts)),
            Kind::Loss => {
                (vec!["loss".to_owned(), draw(&mut self.numbers, &self.lossy), loss], Some(lasts))
            }
            Kind::Silence => (vec!["silence".to_owned(), self.machine(None).name], Some(lasts)),
            Kind::Forget => {
                (vec!["forget".to_owned(), draw(&mut self.numbers, &self.forgetful)], None)
            }
            Kind::Renumber => {
                (vec!["renumber".to_owned(), draw(&mut self.numbers, &self.movable)], None)
            }
            Kind::Kill => (vec!["kill".to_owned(), self.machine(None).name, pattern], None),
            Kind::Reset => {
                let from = self.machine(None);
                let to = self.machine(Some(from.cluster));
                (vec!["reset".to_owned(), from.name, to.name], None)
            }
        };
        Step { after, ask: Ask { words, lasts } }
    }

    /// From 0 to 1, in 1,000 steps.
    fn fraction(&mut self) -> f64 {
        self.numbers.below(1_001) as f64 / 1_000.0
    }

    /// A machine, of another site than `not`. [`Self::check`] has seen that there is one.
    fn machine(&mut self, not: Option<usize>) -> Node {
        let fit: Vec<_> =
            self.machines.iter().filter(|node| Some(node.cluster) != not).cloned().collect();
        let index = self.numbers.below(fit.len());
        fit.get(index).unwrap_or(&self.machines[0]).clone()
    }
}

fn draw(numbers: &mut Numbers, names: &[String]) -> String {
    names.get(numbers.below(names.len())).cloned().unwrap_or_default()
}

fn links(spec: &Spec, names: &[String]) -> Result<Vec<usize>, String> {
    if names.is_empty() {
        return Ok((0..spec.links.len()).collect());
    }
    names.iter().map(|name| fault::read_link(name, spec)).collect()
}

fn machines(spec: &Spec, names: &[String]) -> Result<Vec<Node>, String> {
    let nodes = plan::nodes(spec);
    if !names.is_empty() {
        let find = |name: &String| match plan::find(spec, &nodes, name, None)? {
            Found::Node(index) => Ok(nodes[index].clone()),
            Found::Head => Err("the lab's own head is no part of any fault".to_owned()),
        };
        return names.iter().map(find).collect();
    }
    let of = |roles: &[Role]| -> Vec<Node> {
        nodes.iter().filter(|node| roles.contains(&node.role)).cloned().collect()
    };
    let outer = of(&[Role::Gateway, Role::Public]);
    Ok(if outer.is_empty() { of(&[Role::Node]) } else { outer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use clap::ValueEnum as _;

    const LAB: &str = "[[cluster]]\nname = \"a\"\nnodes = 2\nprivate = true\ngateways = 2\n\
                       [[cluster]]\nname = \"b\"\nnodes = 1\n[[host]]\nname = \"pub\"\n\
                       [[link]]\ndelay = \"1 ms\"\n";

    fn wishes() -> Wishes {
        Wishes {
            kinds: Kind::value_variants().to_vec(),
            links: Vec::new(),
            machines: Vec::new(),
            every: Duration::from_millis(500),
            lasts: Duration::from_secs(1),
            loss: 0.01,
            pattern: Some("relay".to_owned()),
        }
    }

    fn steps(seed: u64) -> Vec<Step> {
        let spec = Spec::parse(LAB, "t", "t").unwrap();
        let mut schedule = Schedule::new(&spec, seed, wishes()).unwrap();
        (0..2_000).map(|_| schedule.draw()).collect()
    }

    #[test]
    fn every_drawn_fault_can_be_made() {
        let spec = Spec::parse(LAB, "t", "t").unwrap();
        let steps = steps(7);
        let mut said = std::collections::BTreeMap::new();
        for step in &steps {
            let words: Vec<&str> = step.ask.words.iter().map(String::as_str).collect();
            let fault = Fault::read(&words, &spec).unwrap();
            assert_eq!(fault.lasts(), step.ask.lasts.is_some());
            assert!((250..=750).contains(&step.after.as_millis()), "{step:?}");
            let lasts = step.ask.lasts.map_or(100, |lasts| lasts.as_millis());
            assert!((100..=1_000).contains(&lasts), "{step:?}");
            *said.entry(step.ask.words.join(" ")).or_insert(0) += 1;
        }
        // 3 links twice, 3 machines twice, from either gateway to the host and back, and the gateways twice.
        assert_eq!(said.len(), 3 + 3 + 3 + 3 + 4 + 2 + 2, "{said:?}");
        let mean = steps.iter().map(|step| step.after).sum::<Duration>() / 2_000;
        assert!((480..520).contains(&mean.as_millis()), "{mean:?}");
    }

    #[test]
    fn links_and_machines_can_be_chosen() {
        let spec = Spec::parse(LAB, "t", "t").unwrap();
        let (links, machines) = (vec!["pub-a".to_owned()], vec!["a-gw2".to_owned(), "pub".into()]);
        let mut schedule = Schedule::new(&spec, 1, Wishes { links, machines, ..wishes() }).unwrap();
        let mut drawn: Vec<_> = (0..500).map(|_| schedule.draw().ask.words.join(" ")).collect();
        drawn.sort();
        drawn.dedup();
        let expected = [
            "cut a-pub",
            "forget a-gw2",
            "kill a-gw2 relay",
            "kill pub relay",
            "loss a-pub 0.01",
            "renumber a-gw2",
            "reset a-gw2 pub",
            "reset pub a-gw2",
            "silence a-gw2",
            "silence pub",
        ];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(steps(1), steps(1));
        assert_ne!(steps(1), steps(2));
    }

    #[test]
    fn wishes_that_cannot_be_fulfilled_are_refused() {
        let two = "[[cluster]]\nname = \"a\"\nnodes = 2\n[[cluster]]\nname = \"b\"\nnodes = 1\n";
        let wrong = |text: &str, change: fn(&mut Wishes)| {
            let mut wishes = wishes();
            change(&mut wishes);
            Schedule::new(&Spec::parse(text, "t", "t").unwrap(), 1, wishes).unwrap_err()
        };
        assert!(wrong(two, |_| ()).contains("write `emulate = true`"));
        assert!(wrong(LAB, |wishes| wishes.pattern = None).contains("--pattern"));
        assert!(wrong(LAB, |wishes| wishes.links = vec!["a-x".into()]).contains("no link `a-x`"));
        assert!(wrong(LAB, |wishes| wishes.every = Duration::ZERO).contains("--every"));
        assert!(wrong(LAB, |wishes| wishes.kinds.clear()).contains("--kinds"));
        assert!(
            wrong(LAB, |wishes| wishes.machines = vec!["a1".into(), "a2".into()]).contains("--on")
        );
        assert!(wrong(LAB, |wishes| wishes.machines = vec!["x".into()]).contains("no node `x`"));
        let one = "[[cluster]]\nname = \"a\"\nnodes = 2\n";
        assert!(wrong(one, |_| ()).contains("no link"));
    }
}
