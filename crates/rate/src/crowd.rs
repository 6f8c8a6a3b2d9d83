//! How many transfers share the links out of a cluster at the same time: what new ones may begin with, before the broker knows of
//! them. Another cluster's way in is such a link, too, and others than we may send over it.

use crate::claims::NEARLY;
use crate::network::Resource;
use crate::{ClusterId, Network, NodeId, Process, Rate};
use std::collections::{BTreeMap, HashMap};

/// More or fewer than were told of, as a part of those, are not worth a word to every process.
const WORTH_TELLING: f64 = 0.1;

/// So many transfers, or as many as there are members, are looked back upon, and as many before them.
const LEAST_SPAN: usize = 4;

/// What one process sends to one cluster is one of a crowd on each link of the way there. A site's own uplink may lead to several.
#[derive(Clone, Debug)]
pub(crate) struct Crowds {
    /// Transfers of each process that has any to a cluster.
    active: HashMap<(Process, ClusterId), u32>,
    /// Nodes of other clusters that send to clusters over links of ours, and to how many nodes there.
    others: HashMap<(ClusterId, NodeId, ClusterId), u32>,
    /// The links to each cluster; and those of them that are on the way from another cluster to it.
    ways: BTreeMap<ClusterId, Vec<Resource>>,
    met: BTreeMap<(ClusterId, ClusterId), Vec<Resource>>,
    crowds: BTreeMap<Resource, Crowd>,
}

/// The senders over one link.
#[derive(Clone, Debug, Default)]
struct Crowd {
    /// To how many clusters it leads, and how many nodes of others it leads there, too.
    clusters: usize,
    strangers: usize,
    /// Our processes, and those nodes.
    own: Meetings,
    others: Meetings,
    told: Option<Size>,
}

/// How many are to be expected on a link at the same time: at the worst, and on the average when one begins, itself one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Size {
    most: usize,
    mean: f64,
}

/// What links leave to each of so many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    to_all: Rate,
    to_most: Rate,
    to_mean: Rate,
}

impl Left {
    /// What one with such an interface begins with; and what is over soon does, which is more where few meet on the average: all seldom are there, and
    /// who is has the message over before a grant says so. But not where it has nearly all that the interface carries though everybody were there: it does
    /// without the rest, and need not claim. Nor where it alone can fill such a link.
    pub(crate) fn begins_with(self, interface: Rate, link: Rate) -> (Rate, Rate) {
        let has_nearly_all = self.to_all >= interface.scaled(NEARLY);
        let is_one_of_many = interface < link;
        let short = if is_one_of_many && !has_nearly_all { self.to_mean } else { self.to_most };
        (self.to_most.min(interface), short.min(interface))
    }
}

/// How many there are at the same time. It counts in transfers, not in time: a program that computes for a minute is the same afterwards.
#[derive(Clone, Debug, Default)]
struct Meetings {
    active: usize,
    /// How many have begun in the present span, and how many there were when each did, itself one, all together.
    begun: usize,
    met: usize,
    /// The most at the same time in the present span.
    most: usize,
    /// What the span before came to: `None` if there was none.
    before: Option<Size>,
}

impl Crowds {
    /// Nobody yet on the links out of `ours`.
    pub(crate) fn new(ours: ClusterId, network: &Network) -> Self {
        let ways: BTreeMap<_, _> = network.ways(ours).collect();
        let mut crowds: BTreeMap<Resource, Crowd> = BTreeMap::new();
        ways.values().flatten().for_each(|&link| crowds.entry(link).or_default().clusters += 1);
        let mut met = BTreeMap::new();
        for from in network.rivals(ours) {
            for (to, mut links) in network.ways(from) {
                links.retain(|link| crowds.contains_key(link));
                for link in &links {
                    let crowd = crowds.get_mut(link).into_iter();
                    crowd.for_each(|crowd| crowd.strangers += network.nodes_of(from));
                }
                met.insert((from, to), links);
            }
        }
        Self { active: HashMap::new(), others: HashMap::new(), ways, met, crowds }
    }

    /// A transfer begins, in a cluster of so many members; whether it is the first of its process to that cluster.
    pub(crate) fn begin(&mut self, process: Process, to: ClusterId, members: usize) -> bool {
        let count = self.active.entry((process, to)).or_default();
        *count = count.saturating_add(1);
        let is_first = *count == 1;
        if is_first {
            self.over(to, |crowd| crowd.begin(members));
        }
        is_first
    }

    /// A transfer has ended; whether it was the last of its process to that cluster.
    pub(crate) fn end(&mut self, process: Process, to: ClusterId) -> bool {
        let Some(count) = self.active.get_mut(&(process, to)) else { return false };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        self.active.remove(&(process, to));
        self.over(to, |crowd| crowd.own.active -= 1);
        true
    }

    /// A transfer of another cluster's begins.
    pub(crate) fn meet(&mut self, from: (ClusterId, NodeId), to: ClusterId) {
        let count = self.others.entry((from.0, from.1, to)).or_default();
        *count = count.saturating_add(1);
        if *count == 1 {
            self.where_met(from.0, to, |crowd| {
                crowd.others.begin();
                crowd.others.pass(crowd.strangers);
            });
        }
    }

    /// One has ended.
    pub(crate) fn part(&mut self, from: (ClusterId, NodeId), to: ClusterId) {
        let Some(count) = self.others.get_mut(&(from.0, from.1, to)) else { return };
        *count -= 1;
        if *count == 0 {
            self.others.remove(&(from.0, from.1, to));
            self.where_met(from.0, to, |crowd| crowd.others.active -= 1);
        }
    }

    /// All of a cluster have.
    pub(crate) fn part_from(&mut self, cluster: ClusterId) {
        let gone: Vec<_> = self.others.extract_if(|(of, ..), _| *of == cluster).collect();
        for ((from, _, to), _) in gone {
            self.where_met(from, to, |crowd| crowd.others.active -= 1);
        }
    }

    fn where_met(&mut self, from: ClusterId, to: ClusterId, change: impl Fn(&mut Crowd)) {
        for link in self.met.get(&(from, to)).into_iter().flatten() {
            self.crowds.get_mut(link).into_iter().for_each(&change);
        }
    }

    /// The clusters to which transfers begin with more or less than they did when this was last asked, a transfer to this one having begun.
    pub(crate) fn news(&mut self, to: ClusterId) -> Vec<ClusterId> {
        let mut new = Vec::new();
        for link in self.ways.get(&to).into_iter().flatten() {
            let crowd = self.crowds.get_mut(link).filter(|crowd| crowd.has_news());
            let Some(crowd) = crowd else { continue };
            crowd.told = crowd.size();
            new.push(*link);
        }
        let is_new = |way: &Vec<Resource>| way.iter().any(|link| new.contains(link));
        self.ways.iter().filter(|(_, way)| is_new(way)).map(|(&to, _)| to).collect()
    }

    /// How many of our processes send to a cluster, where nobody else sends over the links there, and those lead nowhere else.
    pub(crate) fn alone(&self, to: ClusterId) -> Option<usize> {
        let way = self.ways.get(&to)?;
        let is_only_of_one = |link| self.crowds.get(link).is_some_and(Crowd::is_only_of_one);
        let first = way.first().filter(|_| way.iter().all(is_only_of_one))?;
        Some(self.active(*first))
    }

    /// How many of our processes send over a link, by the clusters that each sends to.
    pub(crate) fn active(&self, link: Resource) -> usize {
        self.crowds.get(&link).map_or(0, |crowd| crowd.own.active)
    }

    /// The clusters that links lead to.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = ClusterId> {
        self.ways.keys().copied()
    }

    /// What the links to a cluster leave to each of those who are to be expected there at the same time, of so many members; nothing until enough
    /// has been seen of all.
    pub(crate) fn left(&self, to: ClusterId, members: usize, network: &Network) -> Option<Left> {
        let expected = self.expected(to)?;
        let left = |of: &dyn Fn(&Size) -> f64| {
            let each =
                |(link, size): &(_, Size)| network.capacity(*link).scaled(1.0 / of(size).max(1.0));
            expected.iter().map(each).fold(Rate::UNBOUNDED, Rate::min)
        };
        Some(Left {
            to_all: left(&|_| members as f64),
            to_most: left(&|size| size.most as f64),
            to_mean: left(&|size| size.mean.round()),
        })
    }

    /// Each link to a cluster, and how many are to be expected on it.
    fn expected(&self, to: ClusterId) -> Option<Vec<(Resource, Size)>> {
        let of = |link: &Resource| Some((*link, self.crowds.get(link)?.size()?));
        self.ways.get(&to)?.iter().map(of).collect()
    }

    fn over(&mut self, to: ClusterId, change: impl Fn(&mut Crowd)) {
        for link in self.ways.get(&to).into_iter().flatten() {
            self.crowds.get_mut(link).into_iter().for_each(&change);
        }
    }
}

impl Crowd {
    fn begin(&mut self, members: usize) {
        self.own.begin();
        self.own.pass(members * self.clusters);
        // Others who send no more are forgotten while we go on.
        self.others.pass(self.strangers);
    }

    /// Others count from when they are heard of, which is as late as the way to their broker is long: where some may come, or we send to several clusters
    /// over the link, there always may be the most.
    fn size(&self) -> Option<Size> {
        let most = self.own.most() + self.others.most();
        let mean = if self.is_only_of_one() { self.own.mean() } else { most as f64 };
        self.own.before.map(|_| Size { most, mean })
    }

    /// Nobody else sends over it, and we to one cluster.
    fn is_only_of_one(&self) -> bool {
        self.clusters == 1 && self.strangers == 0
    }

    fn has_news(&self) -> bool {
        let Some(size) = self.size() else { return false };
        let is_other = |now: f64, told: f64| (now - told).abs() > WORTH_TELLING * told;
        let is_new = |told: Size| {
            is_other(size.most as f64, told.most as f64) || is_other(size.mean, told.mean)
        };
        self.told.is_none_or(is_new)
    }
}

impl Meetings {
    fn begin(&mut self) {
        self.active += 1;
        self.met += self.active;
        self.most = self.most.max(self.active);
    }

    /// One has begun where so many could.
    fn pass(&mut self, all: usize) {
        self.begun += 1;
        if self.begun >= LEAST_SPAN.max(all) {
            self.before = Some(Size { most: self.most, mean: self.met_by_each() });
            self.most = self.active;
            (self.begun, self.met) = (0, 0);
        }
    }

    fn most(&self) -> usize {
        self.most.max(self.before.map_or(0, |past| past.most))
    }

    /// Of a span that has just begun nothing is known.
    fn mean(&self) -> f64 {
        let present = if self.begun >= LEAST_SPAN { self.met_by_each() } else { 0.0 };
        present.max(self.before.map_or(0.0, |past| past.mean))
    }

    fn met_by_each(&self) -> f64 {
        self.met as f64 / self.begun.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of a cluster whose own uplink leads to two others, and a link of its own to the first of them.
    fn crowds() -> (Crowds, [ClusterId; 2]) {
        let mut network = Network::new();
        let [ours, one, other] = [(); 3].map(|()| network.add_cluster());
        network.add_link(Rate::UNBOUNDED, &[(ours, one), (ours, other)]);
        network.add_link(Rate::UNBOUNDED, &[(ours, one)]);
        (Crowds::new(ours, &network), [one, other])
    }

    /// How many are expected on the links to a cluster, at the worst.
    fn sizes(crowds: &Crowds, to: ClusterId) -> Option<Vec<usize>> {
        Some(crowds.expected(to)?.into_iter().map(|(_, size)| size.most).collect())
    }

    /// And on the average.
    fn means(crowds: &Crowds, to: ClusterId) -> Option<Vec<f64>> {
        Some(crowds.expected(to)?.into_iter().map(|(_, size)| size.mean).collect())
    }

    fn alone(crowds: &mut Crowds, to: ClusterId, times: usize) {
        for _ in 0..times {
            assert!(crowds.begin(3, to, 2) && crowds.end(3, to));
        }
    }

    #[test]
    fn a_crowd_is_remembered_for_two_spans_and_a_lone_sender_is_believed_after_two() {
        let (mut crowds, [to, _]) = crowds();
        alone(&mut crowds, to, LEAST_SPAN - 1);
        assert_eq!(sizes(&crowds, to), None);
        alone(&mut crowds, to, 1);
        assert_eq!(sizes(&crowds, to), Some(vec![1, 1]));
        assert!((0..4).all(|process| crowds.begin(process, to, 2)));
        // Another of the same process is no other sender.
        assert!(!crowds.begin(2, to, 2));
        // One, two, three and four were there when they began; the uplink leads to several clusters.
        let known = |crowds: &Crowds| (sizes(crowds, to), means(crowds, to));
        assert_eq!(known(&crowds), (Some(vec![4, 4]), Some(vec![4.0, 2.5])));
        assert!(!crowds.end(2, to));
        assert!((0..4).all(|process| crowds.end(process, to)));
        alone(&mut crowds, to, LEAST_SPAN - 1);
        assert_eq!(known(&crowds), (Some(vec![4, 4]), Some(vec![4.0, 2.5])));
        alone(&mut crowds, to, 2 * LEAST_SPAN);
        assert_eq!(known(&crowds), (Some(vec![1, 1]), Some(vec![1.0, 1.0])));
        assert!(!crowds.end(77, to));
    }

    #[test]
    fn spans_grow_with_the_cluster() {
        let (mut crowds, [to, other]) = crowds();
        for process in 0..99 {
            crowds.begin(process, to, 100);
            crowds.end(process, to);
        }
        assert_eq!(sizes(&crowds, to), None);
        crowds.begin(0, to, 100);
        // The link of its own has seen enough, the uplink of two clusters has not.
        assert_eq!((sizes(&crowds, to), sizes(&crowds, other)), (None, None));
        (0..100).for_each(|process| assert!(crowds.begin(process, other, 100)));
        assert_eq!(
            (sizes(&crowds, to), sizes(&crowds, other)),
            (Some(vec![101, 1]), Some(vec![101]))
        );
    }

    #[test]
    fn a_few_more_of_many_are_not_worth_a_word() {
        let (mut crowds, [_, to]) = crowds();
        assert!((0..100).all(|process| crowds.begin(process, to, 4)));
        assert_eq!(crowds.news(to).len(), 2);
        assert!(
            (100..110).all(|process| crowds.begin(process, to, 4) && crowds.news(to).is_empty())
        );
        assert!(crowds.begin(110, to, 4));
        assert_eq!((crowds.news(to).len(), sizes(&crowds, to)), (2, Some(vec![111])));
    }

    #[test]
    fn others_on_the_way_into_a_cluster_count_until_they_are_forgotten() {
        let mut network = Network::new();
        let [ours, theirs, to, third] = [(); 4].map(|()| network.add_cluster());
        let far: Vec<_> = (0..3).map(|_| network.add_node(theirs, Rate::UNBOUNDED)).collect();
        network.add_link(Rate::UNBOUNDED, &[(ours, to), (theirs, to), (third, to)]);
        network.add_link(Rate::UNBOUNDED, &[(theirs, third), (ours, third)]);
        let mut crowds = Crowds::new(ours, &network);
        alone(&mut crowds, to, LEAST_SPAN);
        assert_eq!((sizes(&crowds, to), crowds.news(to).len()), (Some(vec![1]), 1));
        // Twice from one node is one sender; what goes elsewhere meets us there.
        for node in [far[0], far[0], far[1]] {
            crowds.meet((theirs, node), to);
        }
        crowds.meet((theirs, far[2]), third);
        assert_eq!((sizes(&crowds, to), crowds.news(to)), (Some(vec![3]), vec![to]));
        crowds.part((theirs, far[0]), to);
        crowds.part((theirs, far[1]), to);
        assert_eq!(sizes(&crowds, to), Some(vec![3]));
        // Of the two who may be there one is.
        alone(&mut crowds, to, 2 * LEAST_SPAN);
        assert_eq!(sizes(&crowds, to), Some(vec![2]));
        crowds.part_from(theirs);
        crowds.part((theirs, far[0]), to);
        alone(&mut crowds, to, 2 * LEAST_SPAN);
        assert_eq!(sizes(&crowds, to), Some(vec![1]));
        // However many of theirs begin: ours are not forgotten by that.
        assert!((0..4).all(|process| crowds.begin(process, to, 4)));
        assert!((0..4).all(|process| crowds.end(process, to)));
        for _ in 0..9 * LEAST_SPAN {
            crowds.meet((theirs, far[0]), to);
            crowds.part((theirs, far[0]), to);
        }
        assert_eq!((sizes(&crowds, to), means(&crowds, to)), (Some(vec![5]), Some(vec![5.0])));
    }

    #[test]
    fn who_has_nearly_all_in_any_case_begins_with_that_and_others_with_what_is_usual() {
        let mbit = |mbit: f64| Rate::from_bits_per_second(mbit * 1e6).unwrap();
        let left = Left { to_all: mbit(20.0), to_most: mbit(25.0), to_mean: mbit(32.0) };
        let begins_with = |interface| left.begins_with(interface, mbit(160.0));
        assert_eq!(
            [10.0, 20.0, 26.0].map(|rate| begins_with(mbit(rate))),
            [10.0, 20.0, 25.0].map(|rate| (mbit(rate), mbit(rate)))
        );
        let both = [(25.0, 27.0), (25.0, 32.0)].map(|(rate, short)| (mbit(rate), mbit(short)));
        assert_eq!([27.0, 50.0].map(|rate| begins_with(mbit(rate))), both);
        assert_eq!(begins_with(Rate::UNBOUNDED), (mbit(25.0), mbit(25.0)));
    }

    #[test]
    fn whom_an_uplink_leads_to_as_well_is_news_there() {
        let (mut crowds, [one, other]) = crowds();
        alone(&mut crowds, one, LEAST_SPAN);
        assert_eq!(crowds.news(one), [one, other]);
        assert!(crowds.news(one).is_empty() && crowds.news(other).is_empty());
        // Both at once by one process: each begins with half of the uplink, the link of its own is free.
        crowds.begin(3, one, 2);
        assert!(crowds.news(one).is_empty());
        crowds.begin(3, other, 2);
        assert_eq!(crowds.news(other), [one, other]);
        assert_eq!((sizes(&crowds, one), sizes(&crowds, other)), (Some(vec![2, 1]), Some(vec![2])));
    }
}
