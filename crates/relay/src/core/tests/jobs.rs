//! Relays across which not all jobs may go.

use super::*;

const OTHER: JobId = [2; 16];

impl World {
    /// Only these jobs may cross this side of the connection.
    fn let_cross(&mut self, node: usize, wire: u64, jobs: Option<Vec<JobId>>) {
        let Node { core, fake } = &mut self.nodes[node];
        core.set_jobs(fake.trunks[&wire].link, jobs);
        self.flush(node);
        self.settle();
    }

    fn register_in(&mut self, job: JobId, node: usize, me: u32) -> At {
        let at = self.ask_in(job, node, me, Errand::Register { first: ProcId(me), count: 1 });
        self.settle();
        at
    }

    /// Whether a circuit of this job is under way from one relay to a process.
    fn is_found(&mut self, job: JobId, node: usize, to: u32) -> bool {
        let at = self.ask_in(job, node, 0, Errand::Open { to: ProcId(to) });
        self.settle();
        self.check();
        let answer = self.leg(at).answer;
        self.reset(at);
        self.settle();
        // Whoever was not found lately is looked for elsewhere first.
        self.pass_time(Duration::from_millis(1));
        match answer {
            None => true,
            Some(LegVerdict::NoRoute) => false,
            other => panic!("{other:?}"),
        }
    }

    fn routes(&self, node: usize) -> usize {
        self.nodes[node].core.gauges().routes
    }
}

#[test]
fn a_relay_is_believed_and_told_of_the_jobs_that_may_cross_it() {
    // 1 - 0 - 2, and 2 may have nothing to do with JOB.
    let mut world = World::new(3, &Limits::default());
    let [wire, _] = world.join(0, 2);
    world.join(0, 1);
    world.let_cross(0, wire, Some(vec![OTHER]));
    // Somebody at 2 gives himself out for JOB's process 5, which is at 1.
    let real = world.register_in(JOB, 1, 5);
    let false_one = world.register_in(JOB, 2, 5);
    for _ in 0..5 {
        assert!(world.is_found(JOB, 0, 5));
    }
    assert_eq!((world.leg(real).notices.len(), world.leg(false_one).notices.len()), (5, 0));
    // What is only said there is not known here, nor passed on.
    world.register_in(JOB, 2, 6);
    assert!(!world.is_found(JOB, 0, 6) && !world.is_found(JOB, 1, 6));
    assert_eq!([0, 1, 2].map(|node| world.routes(node)), [1, 1, 2]);
    // The other job crosses, both ways.
    world.register_in(OTHER, 2, 6);
    world.register_in(OTHER, 1, 7);
    assert!(world.is_found(OTHER, 1, 6) && world.is_found(OTHER, 2, 7));
    // New settings: what was said before holds now.
    world.let_cross(0, wire, None);
    assert!(world.is_found(JOB, 1, 6) && world.is_found(OTHER, 1, 6));
    assert_eq!([0, 1, 2].map(|node| world.routes(node)), [4, 4, 4]);
    // And the other way round.
    world.let_cross(0, wire, Some(vec![JOB]));
    assert!(world.is_found(JOB, 1, 6) && !world.is_found(OTHER, 1, 6));
    assert!(!world.is_found(OTHER, 2, 7));
    world.check();
}

#[test]
fn what_a_relay_opens_for_other_jobs_is_refused_and_nobody_is_called() {
    let mut world = World::new(2, &Limits::default());
    let [wire, _] = world.join(0, 1);
    let [mine, others] = [JOB, OTHER].map(|job| world.register_in(job, 0, 5));
    // It knows the way from before.
    let Node { core, fake } = &mut world.nodes[0];
    core.routes.set_jobs(fake.trunks[&wire].link, Some(vec![OTHER]));
    assert!(!world.is_found(JOB, 1, 5) && world.is_found(OTHER, 1, 5));
    assert_eq!((world.leg(mine).notices.len(), world.leg(others).notices.len()), (0, 1));
    assert_eq!(world.nodes[0].core.counts().refused[LegVerdict::JobNotAllowed as usize], 1);
}

#[test]
fn circuits_that_stand_go_on_when_their_job_may_not_cross_any_more() {
    let mut world = World::new(2, &Limits::default());
    let [wire, _] = world.join(0, 1);
    let registered = world.register_in(JOB, 1, 5);
    let [a, b] = world.circuit((0, 0), (1, 5), registered).unwrap();
    world.let_cross(0, wire, Some(vec![OTHER]));
    world.send(a, b"goes on");
    world.settle();
    assert_eq!(world.leg(b).got, b"goes on");
    assert!(!world.is_found(JOB, 0, 5));
}
