//! What one job leaves for others.

use super::*;

const OTHER: JobId = [2; 16];

impl World {
    /// What a process of this job is answered that asks the first relay.
    fn answer_in(&mut self, job: JobId, from: u32, errand: Errand) -> (At, Option<LegVerdict>) {
        let at = self.ask_in(job, 0, from, errand);
        self.settle();
        self.check();
        (at, self.leg(at).answer)
    }

    /// Asks until it is refused: how often it was not, and who asked last before.
    fn ask_until_full(&mut self, job: JobId, errand: impl Fn(u32) -> Errand) -> (u32, At) {
        let mut last = (0, 0);
        for n in 0.. {
            let (at, answer) = self.answer_in(job, n, errand(n));
            if answer == Some(LegVerdict::Full) {
                return (n, last);
            }
            last = at;
        }
        unreachable!()
    }
}

fn own(n: u32) -> Errand {
    Errand::Register { first: ProcId(n), count: 1 }
}

fn all(_: u32) -> Errand {
    Errand::Register { first: ProcId(0), count: 1000 }
}

fn open(_: u32) -> Errand {
    Errand::Open { to: ProcId(100) }
}

#[test]
fn one_job_leaves_places_for_connections() {
    let limits = Limits { connections: 81, ..Limits::default() };
    let (mut world, _) = line(2, &limits);
    // One is the other relay's.
    let (count, last) = world.ask_until_full(JOB, all);
    assert_eq!(count, 70);
    assert_eq!(world.nodes[0].core.take_full(), Some(Bound::Connections));
    let (other, answer) = world.answer_in(OTHER, 0, all(0));
    assert_eq!(answer, Some(LegVerdict::Accepted));
    // A circuit of the other's takes two, and gives them back.
    let (opener, _) = world.answer_in(OTHER, 1, Errand::Open { to: ProcId(0) });
    assert_eq!((world.leg(other).notices.len(), world.leg(opener).answer), (1, None));
    for leg in [opener, other, last] {
        world.reset(leg);
    }
    world.settle();
    assert_eq!(world.answer_in(JOB, 200, all(0)).1, Some(LegVerdict::Accepted));
    assert_eq!(world.answer_in(JOB, 201, all(0)).1, Some(LegVerdict::Full));
}

#[test]
fn one_job_leaves_circuits_for_others() {
    let limits = Limits { circuits: 80, ..Limits::default() };
    let (mut world, _) = line(2, &limits);
    world.register(1, 100);
    let (count, last) = world.ask_until_full(JOB, open);
    assert_eq!(count, 70);
    assert_eq!(world.nodes[0].core.take_full(), Some(Bound::Circuits));
    world.ask_in(OTHER, 1, 100, own(100));
    world.settle();
    assert_eq!(world.answer_in(OTHER, 0, open(0)).1, None, "it is on its way");
    // The job may have what it gives back.
    world.reset(last);
    world.settle();
    assert_eq!(
        world.answer_in(JOB, 200, open(0)).1,
        Some(LegVerdict::Full),
        "others have some now"
    );
    for from in 0..2 {
        let wire = *world.nodes[0].fake.legs.keys().nth(from).unwrap();
        world.reset((0, wire));
    }
    world.settle();
    assert_eq!(world.answer_in(JOB, 200, open(0)).1, None);
}

#[test]
fn one_job_leaves_ways_for_others() {
    let (mut world, _) = line(2, &Limits::default());
    let (count, last) = world.ask_until_full(JOB, own);
    assert_eq!(count, 64);
    assert_eq!(world.nodes[0].core.take_full(), Some(Bound::Clusters));
    assert_eq!(world.nodes[1].core.gauges().routes, 64);
    // More of the same clusters may come, and others' clusters.
    let known = Errand::Register { first: ProcId(5), count: 1 };
    assert_eq!(world.answer_in(JOB, 5, known).1, Some(LegVerdict::Accepted));
    assert_eq!(world.answer_in(OTHER, 0, own(0)).1, Some(LegVerdict::Accepted));
    world.reset(last);
    world.settle();
    assert_eq!(world.answer_in(JOB, 70, own(70)).1, Some(LegVerdict::Accepted));
}

/// Its old leg is dead, and the relay does not know it yet.
#[test]
fn who_comes_again_takes_his_own_place() {
    let limits = Limits { connections: 81, ..Limits::default() };
    let (mut world, _) = line(2, &limits);
    assert_eq!(world.ask_until_full(JOB, all).0, 70);
    assert_eq!(world.answer_in(JOB, 5, all(5)).1, Some(LegVerdict::Accepted));
    assert_eq!(world.answer_in(JOB, 200, all(0)).1, Some(LegVerdict::Full));

    let (mut world, _) = line(2, &Limits::default());
    assert_eq!(world.ask_until_full(JOB, own).0, 64);
    assert_eq!(world.answer_in(JOB, 5, own(5)).1, Some(LegVerdict::Accepted));
    assert_eq!(world.answer_in(JOB, 70, own(70)).1, Some(LegVerdict::Full));
}

#[test]
fn who_comes_again_and_is_refused_is_still_where_he_was() {
    let (mut world, _) = line(2, &Limits::default());
    let two = Errand::Register { first: ProcId(100), count: 2 };
    let [old, _] = [100, 101].map(|process| world.answer_in(JOB, process, two).0);
    assert_eq!(world.ask_until_full(JOB, own).0, 63);
    // His cluster has another process here: as of another one he would be of a 65th.
    assert_eq!(world.answer_in(JOB, 100, own(100)).1, Some(LegVerdict::Full));
    assert!(!world.leg(old).is_closed, "he was sent away");
    assert_eq!(world.answer_in(JOB, 7, Errand::Open { to: ProcId(100) }).1, None);
    assert_eq!(world.leg(old).notices.len(), 1);
    // Who is alone in his is not.
    assert_eq!(world.answer_in(JOB, 5, own(200)).1, Some(LegVerdict::Accepted));
}

#[test]
fn who_comes_again_keeps_his_place_though_there_are_fewer_now() {
    let limits = Limits { connections: 81, ..Limits::default() };
    let (mut world, _) = line(2, &limits);
    assert_eq!(world.ask_until_full(JOB, all).0, 70);
    world.nodes[0].core.set_limits(Limits { connections: 41, ..limits });
    assert_eq!(world.answer_in(JOB, 5, all(5)).1, Some(LegVerdict::Accepted));
    assert_eq!(world.nodes[0].core.gauges().registered, 70);
    assert_eq!(world.answer_in(JOB, 200, all(0)).1, Some(LegVerdict::Full));
}
