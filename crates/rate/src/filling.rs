//! Progressive filling: all flows grow together, in proportion to their weights, until a resource is full or a flow has what
//! it wants; those stop, the others grow on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::num::NonZero;

/// One flow over some resources.
#[derive(Clone, Copy, Debug)]
struct Flow {
    weight: NonZero<u32>,
    /// No more than this.
    demand: f64,
    /// Where its resources begin in `Filling::uses`; they end where the next flow's begin.
    uses: u32,
}

impl Flow {
    /// The rate for each unit of weight at which it has this rate.
    fn level_of(&self, rate: f64) -> f64 {
        rate / f64::from(self.weight.get())
    }
}

#[derive(Clone, Copy, Debug)]
struct Resource {
    /// What the flows that have stopped have left.
    left: f64,
    /// Of the flows that grow; 0 if none does.
    weight: u64,
    /// How many have it in their path.
    users: u32,
    /// Where its flows begin in `Filling::flows_of`.
    flows: u32,
}

impl Resource {
    /// The rate for each unit of weight at which it is full.
    fn level(&self) -> f64 {
        self.left.max(0.0) / self.weight as f64
    }
}

/// The work of one allocation. It is used again, so that a step takes no memory once it has had some.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filling {
    resources: Vec<Resource>,
    flows: Vec<Flow>,
    /// The resources of each flow, one flow after the other.
    uses: Vec<u32>,
    /// The flows of each resource, one resource after the other.
    flows_of: Vec<u32>,
    /// Negative: it grows.
    rates: Vec<f64>,
    /// Flows that want no more than something, those that have it first at the end.
    modest: Vec<(f64, u32)>,
    /// When resources will be full. An entry may be too low: they can only become full later than was thought.
    full: BinaryHeap<Reverse<(u64, u32)>>,
}

/// Levels are not negative, so their bits are in the same order.
fn key(level: f64) -> u64 {
    level.to_bits()
}

impl Filling {
    /// Begins anew, with resources of these capacities.
    pub(crate) fn begin(&mut self, capacities: impl Iterator<Item = f64>) {
        let empty = |left| Resource { left, weight: 0, users: 0, flows: 0 };
        self.resources.clear();
        self.resources.extend(capacities.map(empty));
        self.flows.clear();
        self.uses.clear();
    }

    /// A flow over distinct resources, with a demand of more than 0.
    pub(crate) fn add(
        &mut self,
        weight: NonZero<u32>,
        demand: f64,
        resources: impl Iterator<Item = u32>,
    ) {
        let uses = self.uses.len() as u32;
        for resource in resources {
            let used = &mut self.resources[resource as usize];
            if used.left.is_finite() {
                used.weight += u64::from(weight.get());
                used.users += 1;
                self.uses.push(resource);
            }
        }
        self.flows.push(Flow { weight, demand, uses });
    }

    /// The rates of the flows, in the order in which they were added.
    pub(crate) fn fill(&mut self) -> &[f64] {
        self.index();
        self.rates.clear();
        self.rates.resize(self.flows.len(), -1.0);
        while let Some((level, resource)) = self.next_full() {
            match self.next_modest() {
                Some((wanted, flow)) if wanted <= level => {
                    self.modest.pop();
                    self.stop(flow, self.flows[flow as usize].demand);
                }
                _ => self.stop_all(resource, level),
            }
        }
        // Nothing bounds the rest but what they want.
        for (rate, flow) in self.rates.iter_mut().zip(&self.flows) {
            if *rate < 0.0 {
                *rate = flow.demand;
            }
        }
        &self.rates
    }

    /// What [`fill`](Self::fill) gave last.
    pub(crate) fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// What all of them have left of a resource then; 0, but for rounding, where it is full.
    pub(crate) fn left(&self, resource: u32) -> f64 {
        self.resources.get(resource as usize).map_or(f64::INFINITY, |resource| resource.left)
    }

    /// Lists what is looked for: the flows of each resource, resources and flows by when they stop.
    fn index(&mut self) {
        let mut end = 0;
        for resource in &mut self.resources {
            end += resource.users;
            resource.flows = end;
        }
        self.flows_of.clear();
        self.flows_of.resize(self.uses.len(), 0);
        for flow in (0..self.flows.len()).rev() {
            for &resource in &self.uses[range(&self.flows, flow, self.uses.len())] {
                let place = &mut self.resources[resource as usize].flows;
                *place -= 1;
                self.flows_of[*place as usize] = flow as u32;
            }
        }
        self.full.clear();
        let used = self.resources.iter().zip(0u32..).filter(|(resource, _)| resource.weight > 0);
        self.full.extend(used.map(|(resource, index)| Reverse((key(resource.level()), index))));
        self.modest.clear();
        let modest = self.flows.iter().zip(0u32..).filter(|(flow, _)| flow.demand.is_finite());
        self.modest.extend(modest.map(|(flow, index)| (flow.level_of(flow.demand), index)));
        self.modest.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    }

    /// The resource that is full first of all in use, and at which level.
    fn next_full(&mut self) -> Option<(f64, u32)> {
        loop {
            let mut top = self.full.peek_mut()?;
            let Reverse((known, index)) = *top;
            let resource = &self.resources[index as usize];
            if resource.weight == 0 {
                PeekMut::pop(top);
                continue;
            }
            // Rounding must not let the level fall.
            let now = key(resource.level()).max(known);
            if now == known {
                return Some((f64::from_bits(known), index));
            }
            *top = Reverse((now, index));
        }
    }

    /// The growing flow that has what it wants first of all, and at which level.
    fn next_modest(&mut self) -> Option<(f64, u32)> {
        while let Some(&(level, flow)) = self.modest.last() {
            if self.rates[flow as usize] < 0.0 {
                return Some((level, flow));
            }
            self.modest.pop();
        }
        None
    }

    /// A resource is full: its flows grow no more.
    fn stop_all(&mut self, resource: u32, level: f64) {
        let Resource { flows: first, .. } = self.resources[resource as usize];
        let next = self.resources.get(resource as usize + 1);
        let end = next.map_or(self.flows_of.len(), |next| next.flows as usize);
        for place in first as usize..end {
            let flow = self.flows_of[place];
            if self.rates[flow as usize] < 0.0 {
                let Flow { weight, demand, .. } = self.flows[flow as usize];
                self.stop(flow, (f64::from(weight.get()) * level).min(demand));
            }
        }
    }

    fn stop(&mut self, flow: u32, rate: f64) {
        let flow = flow as usize;
        self.rates[flow] = rate;
        let weight = u64::from(self.flows[flow].weight.get());
        for &resource in &self.uses[range(&self.flows, flow, self.uses.len())] {
            let resource = &mut self.resources[resource as usize];
            resource.left -= rate;
            resource.weight -= weight;
        }
    }
}

/// Where the resources of a flow are, of so many uses in all.
fn range(flows: &[Flow], flow: usize, uses: usize) -> std::ops::Range<usize> {
    let end = flows.get(flow + 1).map_or(uses, |next| next.uses as usize);
    flows[flow].uses as usize..end
}
