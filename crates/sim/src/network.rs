//! Connections between clusters, several for two processes: delay, jitter, bandwidth, partial writes and reads, cuts at any time.

use crate::rng::Rng;
use gridmpi_engine::Sink;
use gridmpi_wire::{Header, Strand};
use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// One direction of a connection.
#[derive(Debug, Default)]
pub struct Pipe {
    bytes: VecDeque<u8>,
    /// How many of them have crossed and can be read.
    available: usize,
    /// When the last of the others will have.
    pub last_arrival: u64,
    /// The connection is cut: what is written goes nowhere.
    is_dead: bool,
}

impl Pipe {
    /// Takes as many bytes as it likes, or none when it is full.
    pub fn write(
        &mut self,
        slices: &[IoSlice<'_>],
        capacity: usize,
        rng: &mut Rng,
    ) -> io::Result<usize> {
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.is_dead {
            return Ok(offered);
        }
        let room = capacity - self.bytes.len();
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let wanted = if rng.chance(70) { offered } else { rng.within(1, offered as u64) as usize };
        let taken = wanted.min(room);
        let all = slices.iter().flat_map(|slice| slice.iter().copied());
        self.bytes.extend(all.take(taken));
        Ok(taken)
    }

    /// Bytes in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// `bytes` more have crossed.
    pub fn deliver(&mut self, bytes: usize) {
        self.available = (self.available + bytes).min(self.bytes.len());
    }

    /// Whether something can be read.
    #[must_use]
    pub const fn is_readable(&self) -> bool {
        self.available > 0
    }

    /// Some of the bytes that can be read.
    pub fn read(&mut self, rng: &mut Rng) -> Vec<u8> {
        let most = self.available as u64;
        let bytes = if rng.chance(60) { most } else { rng.within(1, most) } as usize;
        self.available -= bytes;
        self.bytes.drain(..bytes).collect()
    }

    /// The connection is cut: of what is in it, a part can be read yet.
    fn cut(&mut self, rng: &mut Rng) {
        let left = rng.index(self.bytes.len() + 1);
        self.bytes.truncate(left);
        self.available = left;
        self.is_dead = true;
    }
}

/// What one end has read of the frame that it is reading.
#[derive(Debug, Default)]
pub struct Parser {
    /// The header and fields, until they are whole.
    pub head: Vec<u8>,
    /// The frame whose payload comes, and how much of it has come.
    pub frame: Option<(Header, Sink, u32)>,
}

/// How a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// No connection, and nobody makes one.
    Down,
    /// One is being made.
    Dialing,
    /// There is one.
    Up,
    /// It was cut; one end at least has not noticed.
    Cut,
}

/// How long bytes take on a link.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// One way, in ticks.
    pub delay: u64,
    /// Bytes that enter it in a tick; 0: any number.
    pub per_tick: u64,
}

/// The connections of two processes under one number, one after the other.
#[derive(Debug)]
pub struct Link {
    /// The two processes; side 0 and side 1.
    pub ends: [usize; 2],
    /// Its number among those of the two.
    pub strand: Strand,
    /// How long bytes take.
    pub path: Path,
    /// How it is.
    pub state: LinkState,
    /// Counts cuts and connections: events of an earlier one mean nothing.
    pub epoch: u32,
    /// Which ends have been told of the connection and not of its end.
    pub is_up: [bool; 2],
    /// Which ends have yet to hear that it is gone, those too that never heard of it.
    pub is_unaware: [bool; 2],
    /// What each end reads.
    pub parsers: [Parser; 2],
    /// By the side that writes.
    pub pipes: [Pipe; 2],
}

impl Link {
    /// No connection.
    #[must_use]
    pub fn new(ends: [usize; 2], strand: Strand, path: Path) -> Self {
        Self {
            ends,
            strand,
            path,
            state: LinkState::Down,
            epoch: 0,
            is_up: [false; 2],
            is_unaware: [false; 2],
            parsers: Default::default(),
            pipes: Default::default(),
        }
    }

    /// The side of a process that is an end.
    #[must_use]
    pub const fn side(&self, process: usize) -> usize {
        if self.ends[0] == process { 0 } else { 1 }
    }

    /// Whether a process that is an end can make a connection: none stands or is coming, and it knows that.
    #[must_use]
    pub fn is_free(&self, process: usize) -> bool {
        match self.state {
            LinkState::Down => true,
            LinkState::Cut => !self.is_unaware[self.side(process)],
            LinkState::Dialing | LinkState::Up => false,
        }
    }

    /// A new connection.
    pub fn connect(&mut self) {
        self.state = LinkState::Up;
        self.epoch += 1;
        self.parsers = Default::default();
        self.pipes = Default::default();
    }

    /// The connection is cut.
    pub fn cut(&mut self, rng: &mut Rng) {
        self.state = LinkState::Cut;
        self.epoch += 1;
        self.is_unaware = [true; 2];
        self.pipes.iter_mut().for_each(|pipe| pipe.cut(rng));
    }

    /// A side has noticed that the connection is gone. The other one may be making a new one already.
    pub fn notice(&mut self, side: usize) {
        self.is_up[side] = false;
        self.is_unaware[side] = false;
        self.parsers[side] = Parser::default();
        self.pipes[1 - side] = Pipe { is_dead: true, ..Pipe::default() };
        if self.state == LinkState::Cut && self.is_unaware == [false; 2] {
            self.state = LinkState::Down;
        }
    }
}
