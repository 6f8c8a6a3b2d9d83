//! What a process and a relay of its cluster say to each other before a circuit's bytes: any bytes, and genuine messages with a change, to both
//! sides; and what relays tell a process that has registered of other relays.
#![no_main]

use arbitrary::Arbitrary;
use gridmpi_fuzz::{Change, Cuts, change};
use gridmpi_leg::{Ask, AskStep, Asker, Host, HostStep, LegError, Notices};
use gridmpi_wire::{CircuitId, Errand, JobKey, LegNotice, LegVerdict, ProcId};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Input {
    ToRelay {
        bytes: Vec<u8>,
        cuts: Vec<u8>,
    },
    ToProcess {
        bytes: Vec<u8>,
        cuts: Vec<u8>,
    },
    Between {
        knows: Knows,
        errand: Wanted,
        takes: bool,
        changes: [Option<Change>; 4],
        cuts: Vec<u8>,
    },
    Notices {
        bytes: Vec<u8>,
        cuts: Vec<u8>,
    },
    Beside(Vec<u8>),
}

/// What the process holds.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Knows {
    /// The relay's token.
    Token,
    /// Another one of the relay's.
    Other,
    /// One that the relay does not know.
    Nothing,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Wanted {
    Register(u32, u32),
    Open(u32),
    Accept(u64),
}

impl Wanted {
    fn errand(self) -> Errand {
        match self {
            Self::Register(first, count) => Errand::Register { first: ProcId(first), count },
            Self::Open(to) => Errand::Open { to: ProcId(to) },
            Self::Accept(circuit) => Errand::Accept { circuit: CircuitId(circuit) },
        }
    }

    /// Whether process 7 may want it.
    fn is_sound(self) -> bool {
        match self {
            Self::Register(first, count) => (first..first.saturating_add(count)).contains(&7),
            Self::Open(to) => to != 7,
            Self::Accept(_) => true,
        }
    }
}

/// The token of a relay that has two.
fn token(number: u8) -> JobKey {
    JobKey::new([number; 32])
}

fn asker(knows: Knows) -> Asker {
    Asker { me: ProcId(7), job: [3; 16], token: token(knows as u8) }
}

fn relay_reads(side: &mut Host, mut bytes: &[u8], cuts: &mut Cuts) -> Result<HostStep, LegError> {
    while !bytes.is_empty() {
        let count = cuts.fill(side.space(), &mut bytes);
        let found = |id: &_| [0, 1].map(token).into_iter().find(|token| token.token_id() == *id);
        match side.read(count, found)? {
            HostStep::More => {}
            step => return Ok(step),
        }
    }
    Ok(HostStep::More)
}

fn process_reads(
    side: &mut Ask,
    us: &Asker,
    mut bytes: &[u8],
    cuts: &mut Cuts,
) -> Result<AskStep, LegError> {
    while !bytes.is_empty() {
        let count = cuts.fill(side.space(), &mut bytes);
        match side.read(count, us)? {
            AskStep::More => {}
            step => return Ok(step),
        }
    }
    Ok(AskStep::More)
}

/// The whole exchange; whether it came about.
fn between(
    (knows, wanted): (Knows, Wanted),
    takes: bool,
    changes: &[Option<Change>; 4],
    cuts: &mut Cuts,
) -> Result<(), LegError> {
    let us = asker(knows);
    let (mut asking, mut hello) = Ask::new(&us, wanted.errand(), [4; 32]);
    let mut hosting = Host::new([5; 32]);
    let mut is_changed = change(&mut hello, &changes[0]);
    let (mut challenge, is_refused) = match relay_reads(&mut hosting, &hello, cuts)? {
        HostStep::Send(challenge) => (challenge, false),
        HostStep::Refuse(challenge, _) => (challenge, true),
        step => panic!("{step:?} to a whole hello"),
    };
    assert!(
        !is_refused || knows == Knows::Nothing || is_changed,
        "refused though it knows a token"
    );
    is_changed |= change(&mut challenge, &changes[1]);
    let AskStep::Send(mut request) = process_reads(&mut asking, &us, &challenge, cuts)? else {
        panic!("no request for a whole challenge");
    };
    is_changed |= change(&mut request, &changes[2]);
    let asked = match relay_reads(&mut hosting, &request, cuts)? {
        HostStep::Asked(asked) => asked,
        step => panic!("{step:?} to a whole request"),
    };
    assert!(knows != Knows::Nothing && !is_changed && wanted.is_sound(), "not to be believed");
    assert_eq!(
        (asked.what().errand, asked.what().from, asked.what().job),
        (wanted.errand(), us.me, us.job)
    );
    assert_eq!(asked.token(), us.token.token_id());
    let verdict = if takes { LegVerdict::Accepted } else { LegVerdict::NoRoute };
    let mut answer = asked.answer(verdict);
    is_changed |= change(&mut answer, &changes[3]);
    match process_reads(&mut asking, &us, &answer, cuts)? {
        AskStep::Done => assert!(takes && !is_changed),
        step => panic!("{step:?} to a whole answer"),
    }
    Ok(())
}

/// Notices as they are read in such pieces, until one is none.
fn notices(mut bytes: &[u8], cuts: &mut Cuts) -> (Vec<LegNotice>, bool) {
    let (mut side, mut all) = (Notices::default(), Vec::new());
    while !bytes.is_empty() {
        let count = cuts.fill(side.space(), &mut bytes);
        match side.read(count) {
            Ok(notice) => all.extend(notice),
            Err(_) => return (all, true),
        }
    }
    (all, false)
}

fuzz_target!(|input: Input| match input {
    Input::ToRelay { bytes, cuts } => {
        let step = relay_reads(&mut Host::new([5; 32]), &bytes, &mut Cuts::new(cuts));
        assert!(!matches!(step, Ok(HostStep::Asked(_))));
    }
    Input::ToProcess { bytes, cuts } => {
        let us = asker(Knows::Token);
        let (mut side, _) = Ask::new(&us, Errand::Open { to: ProcId(1) }, [4; 32]);
        let step = process_reads(&mut side, &us, &bytes, &mut Cuts::new(cuts));
        assert!(matches!(step, Err(_) | Ok(AskStep::More)));
    }
    Input::Between { knows, errand, takes, changes, cuts } => {
        let is_plain = changes.iter().flatten().all(|change| change.is_none());
        let is_sound = knows != Knows::Nothing && errand.is_sound() && takes && is_plain;
        let came = between((knows, errand), takes, &changes, &mut Cuts::new(cuts));
        assert_eq!(came.is_ok(), is_sound, "{came:?}");
    }
    Input::Notices { bytes, cuts } => {
        let (all, is_over) = notices(&bytes, &mut Cuts::new(cuts));
        assert_eq!(notices(&bytes, &mut Cuts::new(Vec::new())), (all.clone(), is_over));
        let again: Vec<u8> = all.iter().flat_map(LegNotice::encode).collect();
        assert!(
            bytes.starts_with(&again) && (is_over || bytes.len() - again.len() < LegNotice::LEN)
        );
    }
    Input::Beside(bytes) => gridmpi_net::fuzz::beside(&bytes),
});
