//! Steps that nothing orders must not touch the same bytes, unless all only read them.

use gridmpi_coll::{LocalCollective, Schedule, Span, Step};

#[derive(Default)]
struct Access {
    reads: Vec<Span>,
    writes: Vec<Span>,
}

fn of_step(step: &Step, local: u32) -> Access {
    let (reads, writes) = match step {
        Step::Send { data, .. } => (data.clone(), vec![]),
        Step::Receive { into, .. } => (vec![], into.clone()),
        Step::Copy { from, to } => (vec![*from], vec![*to]),
        Step::Reduce { from, into } => (vec![*from], vec![*into]),
        Step::Local(collective) => of_local(collective, local),
    };
    Access { reads, writes }
}

fn of_local(collective: &LocalCollective, me: u32) -> (Vec<Span>, Vec<Span>) {
    use LocalCollective as L;
    let list = |span: &Option<Span>| span.iter().copied().collect::<Vec<_>>();
    match collective {
        L::Barrier => (vec![], vec![]),
        L::Bcast { data, root } if *root == me => (vec![*data], vec![]),
        L::Bcast { data, .. } => (vec![], vec![*data]),
        L::Gatherv { send, recv, .. } | L::Allgatherv { send, recv } => {
            let own = recv.get(me as usize).copied();
            let others = recv.iter().enumerate().filter(|(index, _)| *index != me as usize);
            let mut writes: Vec<_> = others.map(|(_, span)| *span).collect();
            match send {
                Some(send) => {
                    writes.extend(own);
                    (vec![*send], writes)
                }
                None => (own.into_iter().collect(), writes),
            }
        }
        L::Scatterv { send, recv, .. } => (send.clone(), list(recv)),
        L::Alltoallv { send, recv } => (send.clone(), recv.clone()),
        L::Reduce { from, into, .. } => (list(from), list(into)),
        L::ReduceScatter { from, into } => (from.clone(), vec![*into]),
        L::Scan { from, into } | L::Exscan { from, into } => (list(from), vec![*into]),
    }
}

fn overlap(a: &[Span], b: &[Span]) -> bool {
    let meet =
        |x: &Span, y: &Span| x.buffer == y.buffer && x.offset.max(y.offset) < x.end().min(y.end());
    a.iter().any(|x| b.iter().any(|y| meet(x, y)))
}

/// Fails if two steps race, or one step reads and writes the same bytes.
pub fn check_races(schedule: &Schedule, local: u32) {
    let all: Vec<Access> = schedule.steps.iter().map(|step| of_step(step, local)).collect();
    let mut before: Vec<Vec<bool>> = Vec::new();
    for (index, access) in all.iter().enumerate() {
        let mut reached = vec![false; index];
        for step in super::waits(schedule, index) {
            reached[step.0 as usize] = true;
            for (earlier, seen) in before[step.0 as usize].iter().enumerate() {
                reached[earlier] |= seen;
            }
        }
        let step = &schedule.steps[index];
        assert!(!overlap(&access.reads, &access.writes), "reads what it writes: {step:?}");
        for (earlier, other) in all[..index].iter().enumerate().filter(|(e, _)| !reached[*e]) {
            let race = overlap(&access.writes, &other.writes)
                || overlap(&access.writes, &other.reads)
                || overlap(&access.reads, &other.writes);
            assert!(
                !race,
                "step {index} {step:?} races with {earlier} {:?}",
                schedule.steps[earlier]
            );
        }
        before.push(reached);
    }
}
