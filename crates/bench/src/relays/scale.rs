//! Thousands of processes at relays: what each relay holds and computes while they are idle and while they chatter.

use super::cost::{self, Cost};
use super::mesh::{Crowds, Mesh};
use super::servers::Keys;
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::samples::{Samples, quantile};
use crate::session::Session;
use std::thread;
use std::time::Duration;

const CLUSTERS: u32 = 4;
/// What the figures are held against: the same with so few processes in each cluster.
const FEW: u32 = 10;
/// Most that a relay may hold after it has carried all that, MB: what it grants to senders is bounded by itself (`memory`) and says nothing of it.
const RESIDENT: f64 = 64.0;
/// Of one core, that a relay without traffic may take, %.
const IDLE: f64 = 1.0;
/// How often it may be woken then, 1/s.
const WAKEUPS: f64 = 10.0;
/// After the circuits were opened the relays' own words settle; for 10 s they look after connections that have been used.
const SETTLE: Duration = Duration::from_secs(12);

/// What is done with a number of processes.
#[derive(Clone, Copy, Debug)]
struct Plan {
    processes: u32,
    idle: Duration,
    chat: Duration,
    /// Messages per second of all together, each echoed.
    rate: u32,
}

impl Plan {
    fn circuits(self) -> u32 {
        self.processes * CLUSTERS * (CLUSTERS - 1)
    }

    /// Circuits that begin or end at each relay.
    fn circuits_each(self) -> f64 {
        f64::from(2 * self.circuits() / CLUSTERS)
    }

    /// How often a message or its echo passes each relay: both pass two.
    fn passages(self) -> f64 {
        f64::from(self.rate) * self.chat.as_secs_f64() * 4.0 / f64::from(CLUSTERS)
    }
}

/// What was seen; of each relay where it is not of all.
#[derive(Debug)]
struct Seen {
    plan: Plan,
    register: Samples,
    open: Samples,
    chat: Samples,
    /// Resident bytes: nobody there, all registered, all circuits open, after they have chattered.
    resident: [Vec<f64>; 4],
    /// Memory of the kernel for one leg, both ends.
    leg: Option<f64>,
    /// Bytes that are granted: idle, and after chattering.
    granted: [Vec<f64>; 2],
    /// What a second idle costs, and all of the chattering.
    idle: Vec<Cost>,
    chattering: Vec<Cost>,
}

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    let seconds = Duration::from_secs;
    let (processes, rate) = session.choose((100, 1000), (1000, 2000));
    let (idle, chat) = session.choose((seconds(3), seconds(4)), (seconds(20), seconds(20)));
    let many = run(session, Plan { processes, idle, chat, rate })?;
    // Many stand for themselves if this fails.
    let name = format!("{FEW} × {CLUSTERS} processes");
    let few = Plan { processes: FEW, idle, chat, rate };
    let few = session.part(&name, |session| run(session, few));
    figures(&many, few.as_ref())
}

fn run(session: &mut Session, plan: Plan) -> Result<Seen, BenchError> {
    session.drop_lab();
    let keys = Keys::make(session)?;
    let until = session.until()?;
    let mesh = Mesh::start(&keys, CLUSTERS, until)?;
    let mut crowds = Crowds::start(&mesh, &keys, plan.processes)?;
    let resident =
        || Ok::<Vec<f64>, BenchError>(mesh.costs()?.iter().map(|c| c.resident).collect());
    let empty = resident()?;
    let kernel = cost::of_kernel();
    let register = crowds.order("register", &mesh, until)?;
    let registered = resident()?;
    let open = crowds.order("open", &mesh, until)?;
    thread::sleep(SETTLE);
    let opened = resident()?;
    let legs = f64::from(plan.processes * CLUSTERS + 2 * plan.circuits());
    let leg = cost::of_kernel().zip(kernel).map(|(after, before)| (after - before) / legs);
    let granted = mesh.gauges("granted_bytes")?;
    let before = mesh.costs()?;
    thread::sleep(plan.idle);
    let idle = since(&mesh.costs()?, &before, plan.idle.as_secs_f64());
    let before = mesh.costs()?;
    let rate = f64::from(plan.rate / CLUSTERS);
    let chat = crowds.order(&format!("chat {rate} {}", plan.chat.as_secs()), &mesh, until)?;
    let chattering = since(&mesh.costs()?, &before, 1.0);
    let granted = [granted, mesh.gauges("granted_bytes")?];
    let resident = [empty, registered, opened, resident()?];
    Ok(Seen { plan, register, open, chat, resident, leg, granted, idle, chattering })
}

/// What was used between, by so many of something.
fn since(after: &[Cost], before: &[Cost], count: f64) -> Vec<Cost> {
    let less = |(after, before): (&Cost, &Cost)| Cost {
        cpu: (after.cpu - before.cpu) / count,
        wakeups: (after.wakeups - before.wakeups) / count,
        resident: after.resident,
    };
    after.iter().zip(before).map(less).collect()
}

fn figures(many: &Seen, few: Option<&Seen>) -> Result<Vec<Figure>, BenchError> {
    let whom = format!("{FEW} × {CLUSTERS}");
    let row = |name: String, unit, of: &dyn Fn(&Seen) -> Vec<f64>, bound| {
        Figure::new(name, unit, &of(many), &whom, &few.map_or_else(Vec::new, of), bound)
    };
    let (processes, circuits) = (many.plan.processes * CLUSTERS, many.plan.circuits());
    let mut figures = Vec::new();
    type Of = fn(&Seen) -> &Samples;
    let stages: [(Of, String); 2] = [
        (|seen| &seen.register, format!("until {processes} processes are registered")),
        (|seen| &seen.open, format!("until {circuits} circuits are open")),
    ];
    for (of, name) in stages {
        // The last of the clusters counts.
        let last = |seen: &Seen| Ok::<_, BenchError>(vec![quantile(of(seen).get("took")?, 1.0)]);
        let others = few.map_or(Ok(Vec::new()), last)?;
        figures.push(Figure::new(name, "s", &last(many)?, &whom, &others, Bound::Told));
    }
    let stages = [
        ("nobody there", Bound::Told),
        ("registered", Bound::Told),
        ("circuits idle", Bound::Told),
        ("after chattering", Bound::AtMost(RESIDENT)),
    ];
    for (stage, (name, bound)) in stages.into_iter().enumerate() {
        let megabytes = |seen: &Seen| scaled(&seen.resident[stage], 1e-6);
        figures.push(row(format!("relay's resident memory, {name}"), "MB", &megabytes, bound));
    }
    figures.extend(memory(many));
    for (stage, name) in ["circuits idle", "after chattering"].into_iter().enumerate() {
        let megabytes = |seen: &Seen| scaled(&seen.granted[stage], 1e-6);
        figures.push(row(format!("granted, {name}"), "MB", &megabytes, Bound::Told));
    }
    let share = |seen: &Seen| seen.idle.iter().map(|cost| cost.cpu * 100.0).collect();
    figures.push(row("relay's share of a core, idle".into(), "%", &share, Bound::AtMost(IDLE)));
    let wakeups = |seen: &Seen| seen.idle.iter().map(|cost| cost.wakeups).collect();
    figures.push(row("relay's wake-ups, idle".into(), "1/s", &wakeups, Bound::AtMost(WAKEUPS)));
    figures.extend(chattering(many, few, &whom)?);
    Ok(figures)
}

/// What one more costs in memory.
fn memory(many: &Seen) -> Vec<Figure> {
    let [empty, registered, opened, _] = &many.resident;
    let each = |after: &[f64], before: &[f64], count: f64| -> Vec<f64> {
        after.iter().zip(before).map(|(after, before)| (after - before) / count / 1e3).collect()
    };
    let circuits = many.plan.circuits_each();
    let of_circuit = each(opened, registered, circuits);
    let granted = scaled(&many.granted[0], 1e-3 / circuits);
    let mut figures = vec![Figure::new(
        "relay's memory for an idle circuit",
        "KB",
        &of_circuit,
        "granted to its senders",
        &granted,
        Bound::Told,
    )];
    let of_process = each(registered, empty, f64::from(many.plan.processes));
    let kernel: Vec<f64> = many.leg.iter().map(|bytes| bytes / 1e3).collect();
    let name = "relay's memory for a registered process";
    let whom = "kernel, a leg's both ends";
    figures.push(Figure::new(name, "KB", &of_process, whom, &kernel, Bound::Told));
    figures
}

fn chattering(many: &Seen, few: Option<&Seen>, whom: &str) -> Result<Vec<Figure>, BenchError> {
    let rate = many.plan.rate;
    let share = |seen: &Seen| -> Vec<f64> {
        let all = seen.plan.chat.as_secs_f64();
        seen.chattering.iter().map(|cost| cost.cpu / all * 100.0).collect()
    };
    let passage = |seen: &Seen| -> Vec<f64> {
        seen.chattering.iter().map(|cost| cost.cpu * 1e6 / seen.plan.passages()).collect()
    };
    let told = |name: String, unit, of: &dyn Fn(&Seen) -> Vec<f64>| {
        Figure::new(name, unit, &of(many), whom, &few.map_or_else(Vec::new, of), Bound::Told)
    };
    let mut figures = vec![
        told(format!("relay's share of a core, {rate} messages/s echoed"), "%", &share),
        told("processor time of a message through one relay".into(), "µs", &passage),
    ];
    let trips = |seen: &Seen| seen.chat.get("round-trip").map(<[f64]>::to_vec);
    let (ours, theirs) = (trips(many)?, few.map_or(Ok(Vec::new()), trips)?);
    for (at, name) in
        [(0.5, "median"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (1.0, "slowest")]
    {
        let of = |took: &[f64]| match took {
            [] => Vec::new(),
            took => vec![quantile(took, at) / 1e3],
        };
        let (ours, theirs) = (of(&ours), of(&theirs));
        let name = format!("round trip of a message, {name}");
        figures.push(Figure::new(name, "ms", &ours, whom, &theirs, Bound::Told));
    }
    let skipped =
        |seen: &Seen| Ok::<_, BenchError>(vec![seen.chat.get("skipped")?.iter().sum::<f64>()]);
    let others = few.map_or(Ok(Vec::new()), skipped)?;
    let name = "messages not sent, the one before still on its way";
    figures.push(Figure::new(name, "", &skipped(many)?, whom, &others, Bound::Told));
    Ok(figures)
}

fn scaled(values: &[f64], factor: f64) -> Vec<f64> {
    values.iter().map(|value| value * factor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two relays, one of which holds so many bytes after chattering.
    fn seen(resident: f64) -> Seen {
        let (idle, chat) = (Duration::from_secs(20), Duration::from_secs(20));
        Seen {
            plan: Plan { processes: 1000, idle, chat, rate: 2000 },
            register: Samples::parse("@took 0.1"),
            open: Samples::parse("@took 0.7"),
            chat: Samples::parse("@round-trip 200\n@skipped 0"),
            resident: [vec![8e6; 2], vec![8e6; 2], vec![12e6; 2], vec![resident; 2]],
            leg: None,
            granted: [vec![98e6; 2], vec![98e6; 2]],
            idle: vec![Cost::default(); 2],
            chattering: vec![Cost::default(); 2],
        }
    }

    #[test]
    fn what_a_relay_holds_is_judged_and_not_what_it_bounds_itself() {
        let judged = |seen: &Seen| {
            let figures = figures(seen, None).unwrap();
            let judged = figures.into_iter().filter_map(|figure| Some((figure.name, figure.met?)));
            judged.collect::<Vec<_>>()
        };
        let small = judged(&seen(12e6));
        assert!(small.len() == 3 && small.iter().all(|(_, met)| *met), "{small:?}");
        // 1 MB more for each of some hundred circuits.
        let missed: Vec<_> = judged(&seen(1e9)).into_iter().filter(|(_, met)| !met).collect();
        assert_eq!(missed, [("relay's resident memory, after chattering".to_owned(), false)]);
    }
}
