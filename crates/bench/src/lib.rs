//! `gridmpi bench`: every figure is measured in one run together with what it is compared to, by turns.
//!
//! [`cli`] → a suite ([`p2p`], [`rates`], [`relays`]) of groups, each of which brings up a lab ([`place`]), runs compiled
//! programs ([`programs`]) in it, and turns their samples into [`figure`]s.
//! Everything runs inside labs that live no longer than this process, or is [`bound`] to it: whatever becomes of
//! it, nothing is left.
#![forbid(unsafe_code)]

pub mod bound;
pub mod cli;
pub mod error;
pub mod figure;
pub mod grid;
pub mod group;
pub mod network;
pub mod p2p;
pub mod place;
pub mod process;
pub mod programs;
pub mod rates;
pub mod relays;
pub mod samples;
pub mod session;
pub mod sockets;
pub mod watched;
