//! What must hold when nothing moves any more, and what is done then.
//!
//! A random program may rightly come to stand: a receive whose message another receive got waits for
//! ever. It is ended here as a program could (cancelled, or served), so that every program ends. What
//! must never be is that something stands which MPI says goes on.

use crate::plan::Accepts;
use crate::program::{Block, Request};
use crate::rules::{Message, MessageIndex, Probe, Stage, Where};
use crate::world::{Phase, World, trace};
use gridmpi_engine::TagMatch;
use gridmpi_wire::ProcId;

/// A run that comes to stand more often than this does not end.
const MOST_ROUNDS: u32 = 2000;

impl World {
    /// Runs to the end.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run_to_end(&mut self) -> Result<(), String> {
        for _ in 0..MOST_ROUNDS {
            self.run()?;
            if self.nudge() {
                continue;
            }
            self.check_standstill();
            self.check()?;
            match self.phase {
                Phase::Running => {
                    if !self.release() {
                        self.phase = Phase::Draining;
                    }
                }
                Phase::Draining => {
                    if !self.drain() {
                        self.check_received()?;
                        self.close();
                    }
                }
                Phase::Closing => return self.check_closed(),
            }
            self.cut_again();
            self.check()?;
        }
        Err("it comes to stand again and again".to_owned())
    }

    /// A real program polls without end: look once more at everything. Whether anything moved.
    fn nudge(&mut self) -> bool {
        let mut moved = false;
        for process in 0..self.processes.len() {
            if self.processes[process].endpoint.has_held() {
                moved |= self.poll_now(process);
            }
            for thread in 0..self.processes[process].threads.len() {
                if self.processes[process].threads[thread].is_blocked() {
                    self.check_woken(process, thread);
                    moved |= self.step_now(process, thread);
                    self.attend(process);
                }
            }
        }
        let done: Vec<_> = std::mem::take(&mut self.janitor);
        for (process, receive) in done {
            if !self.finish_if_over(Request::Receive(receive)) {
                self.janitor.push((process, receive));
            }
        }
        moved
    }

    /// Held receives and probes look again and again, but who waits for requests sleeps until their count of completions moves:
    /// none of them is over that the thread was not woken for.
    fn check_woken(&mut self, process: usize, thread: usize) {
        let waiting = &self.processes[process].threads[thread];
        let requests: &[Request] = match &waiting.block {
            Some(Block::All(requests)) => requests,
            Some(Block::Any) => &waiting.requests,
            _ => return,
        };
        let over = requests.iter().find(|&&request| self.is_over(request)).copied();
        if let Some(over) = over.filter(|_| !waiting.is_step_due()) {
            self.rules.fail(format!("p{process}.{thread} was not woken, and {over:?} is over"));
        }
    }

    /// Everything that matched is complete, nothing that matches waits, and all frames have come.
    fn check_standstill(&mut self) {
        if let Some((receive, message)) = self.rules.left_waiting(|m| self.is_held_back(m)) {
            let place = self.rules.messages[message].place;
            self.rules.fail(format!("receive {receive} waits for {message}, which is {place:?}"));
        }
        self.check_streams();
        for message in 0..self.rules.messages.len() {
            let m = &self.rules.messages[message];
            let matched = matches!(m.place, Where::Matched(_));
            if m.request.is_some() && matched && !m.is_sent && !self.is_over(Request::Send(message))
            {
                self.rules.fail(format!("send {message} was received and is not over"));
            }
        }
        for receive in 0..self.rules.receives.len() {
            let r = &self.rules.receives[receive];
            let matched = matches!(r.stage, Stage::Matched(_));
            if matched && !r.is_freed && !self.is_over(Request::Receive(receive)) {
                self.rules.fail(format!("receive {receive} has matched and is not over"));
            }
        }
    }

    /// All that there is for a peer has gone, and is acknowledged.
    fn check_streams(&mut self) {
        let count = self.processes.len();
        for (process, peer) in (0..count * count).map(|pair| (pair / count, pair % count)) {
            let (endpoint, id) = (&self.processes[process].endpoint, ProcId(peer as u32));
            if !endpoint.is_idle(id) || endpoint.unwritten_bytes(id) > 0 {
                self.rules.fail(format!("p{process} keeps something from p{peer}"));
            }
        }
    }

    /// Ends what some blocked thread waits for. Whether there was one.
    fn release(&mut self) -> bool {
        let all = self.processes.iter().enumerate().flat_map(|(process, p)| {
            let blocked = p.threads.iter().enumerate().filter(|entry| entry.1.is_blocked());
            blocked.map(move |(thread, _)| (process, thread))
        });
        let all: Vec<_> = all.collect();
        if all.is_empty() {
            return false;
        }
        let (process, thread) = all[self.rng.index(all.len())];
        self.stats.releases += 1;
        trace!(self, "p{process}.{thread} is released");
        match self.processes[process].threads[thread].block.clone() {
            Some(Block::All(requests)) => self.end_all(&requests),
            Some(Block::Any) => {
                let requests = self.processes[process].threads[thread].requests.clone();
                self.end_all(&requests);
            }
            Some(Block::Probe { accepts, .. } | Block::Claim { accepts, .. }) => {
                self.processes[process].threads[thread].block = None;
                self.check_lost_probe(process, accepts);
            }
            Some(Block::Claimed { .. }) | None => {}
        }
        self.step_later(process, thread);
        true
    }

    fn check_lost_probe(&mut self, process: usize, accepts: Accepts) {
        let Accepts { comm, source, tag } = accepts;
        let probe = Probe { process, comm, source, tag };
        if self.rules.findable(&probe).any(|message| !self.is_held_back(message)) {
            self.rules.fail(format!("a probe of p{process}, {accepts:?}, missed a message"));
        }
    }

    /// Cancels the receives and receives the sends.
    fn end_all(&mut self, requests: &[Request]) {
        for &request in requests {
            match request {
                Request::Receive(receive) => {
                    self.cancel(receive);
                    self.attend(self.rules.receives[receive].process);
                }
                Request::Send(message) if self.is_held_back(message) => self.serve_all_to(message),
                Request::Send(message) => self.serve(message),
            }
        }
    }

    /// Receives a message and what its sender has sent before it, which holds it back.
    fn serve_all_to(&mut self, message: MessageIndex) {
        let Message { from, to, .. } = self.rules.messages[message];
        let sent = self.pairs.get(&(from, to)).cloned().unwrap_or_default();
        for before in sent.into_iter().filter(|&other| other <= message) {
            self.serve(before);
        }
    }

    /// Posts a receive that `message` fits, if it is unmatched.
    fn serve(&mut self, message: MessageIndex) {
        let m = &self.rules.messages[message];
        if !matches!(m.place, Where::Flying | Where::Arrived) {
            return;
        }
        let (process, tag) = (m.to, TagMatch::Is(m.tag));
        let accepts = Accepts { comm: m.comm, source: Some(m.source), tag };
        let receive = self.receive(process, accepts, self.plan.longest());
        self.janitor.push((process, receive));
        self.attend(process);
    }

    /// Ends what the program has left: freed receives, and messages that it never received. Whether
    /// there was any.
    fn drain(&mut self) -> bool {
        for receive in self.rules.pending() {
            self.cancel(receive);
            self.attend(self.rules.receives[receive].process);
        }
        let unmatched = self.rules.unmatched();
        for &message in &unmatched {
            self.serve(message);
        }
        !unmatched.is_empty() || !self.janitor.is_empty()
    }

    fn close(&mut self) {
        self.phase = Phase::Closing;
        for process in 0..self.processes.len() {
            self.processes[process].endpoint.close();
            self.attend(process);
        }
    }

    /// All was received, and nothing is left over.
    fn check_received(&mut self) -> Result<(), String> {
        self.rules.check_end();
        for (process, p) in self.processes.iter().enumerate() {
            if p.endpoint.live() != (0, 0) || p.endpoint.has_held() {
                let (requests, messages) = p.endpoint.live();
                return Err(format!("p{process} keeps {requests} requests, {messages} messages"));
            }
            for peer in 0..self.processes.len() {
                let left = p.endpoint.unexpected_of(ProcId(peer as u32));
                if left != (0, 0) {
                    return Err(format!("p{process} holds {left:?} of p{peer}"));
                }
            }
        }
        self.check()
    }

    /// Every stream has ended and is acknowledged, and nothing else came of it.
    fn check_closed(&mut self) -> Result<(), String> {
        self.rules.check_memory();
        self.check()?;
        for (process, p) in self.processes.iter().enumerate() {
            if !p.endpoint.is_drained() {
                return Err(format!("p{process} does not drain"));
            }
        }
        for [process, peer] in self.connected_pairs() {
            if !self.processes[process].endpoint.peer_closed(ProcId(peer as u32)) {
                return Err(format!("p{process} saw no end of p{peer}"));
            }
        }
        Ok(())
    }
}
