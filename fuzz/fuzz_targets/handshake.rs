//! Any bytes, and genuine messages with a change, as handshakes; to both sides.
#![no_main]

use arbitrary::Arbitrary;
use gridmpi_fuzz::{Change, Cuts, change};
use gridmpi_net::HandshakeError;
use gridmpi_net::handshake::{Answer, AnswerStep, Ask, AskStep, Claim, Identity, Proven};
use gridmpi_wire::{JobKey, ProcId, Strand, Verdict};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Input {
    ToListener {
        bytes: Vec<u8>,
        cuts: Vec<u8>,
    },
    ToDialer {
        bytes: Vec<u8>,
        cuts: Vec<u8>,
    },
    Between {
        knows_key: bool,
        verdict: u8,
        expects: [u64; 2],
        strands: [u8; 2],
        changes: [Option<Change>; 4],
        cuts: Vec<u8>,
    },
}

fn identity(me: u32, key: u8) -> Identity {
    Identity { me: ProcId(me), procs: 2, job: [3; 16], key: JobKey::new([key; 32]) }
}

fn answer(
    side: &mut Answer,
    us: &Identity,
    mut bytes: &[u8],
    cuts: &mut Cuts,
) -> Result<AnswerStep, HandshakeError> {
    while !bytes.is_empty() {
        let count = cuts.fill(side.space(), &mut bytes);
        match side.read(count, us)? {
            AnswerStep::More => {}
            step => return Ok(step),
        }
    }
    Ok(AnswerStep::More)
}

fn ask(
    side: &mut Ask,
    us: &Identity,
    claim: Claim,
    mut bytes: &[u8],
    cuts: &mut Cuts,
) -> Result<AskStep, HandshakeError> {
    while !bytes.is_empty() {
        let count = cuts.fill(side.space(), &mut bytes);
        match side.read(count, us, claim)? {
            AskStep::More => {}
            step => return Ok(step),
        }
    }
    Ok(AskStep::More)
}

fn strand(number: u8) -> Strand {
    Strand::new(number as usize % Strand::MAX).expect("below the bound")
}

/// The whole exchange; whether both sides hold a connection.
fn between(
    knows_key: bool,
    verdict: u8,
    expects: [u64; 2],
    strands: [u8; 2],
    changes: &[Option<Change>; 4],
    cuts: &mut Cuts,
) -> Result<Option<bool>, HandshakeError> {
    let expects = expects.map(|number| number.max(1));
    let [wanted, other] = strands.map(strand);
    let claim = Claim::new(expects[0], wanted).with(other);
    let (listener, dialer) = (identity(0, 1), identity(1, if knows_key { 1 } else { 2 }));
    let (mut asking, mut hello) = Ask::new(&dialer, ProcId(0), [4; 32]);
    let mut answering = Answer::new([5; 32]);
    let mut is_changed = change(&mut hello, &changes[0]);
    let mut challenge = match answer(&mut answering, &listener, &hello, cuts)? {
        AnswerStep::Send(challenge) => challenge,
        AnswerStep::Refuse(challenge) => challenge,
        step => panic!("{step:?} to a whole hello"),
    };
    is_changed |= change(&mut challenge, &changes[1]);
    let AskStep::Send(mut proof) = ask(&mut asking, &dialer, claim, &challenge, cuts)? else {
        panic!("no proof for a whole challenge");
    };
    is_changed |= change(&mut proof, &changes[2]);
    let proven: Proven = match answer(&mut answering, &listener, &proof, cuts)? {
        AnswerStep::Proven(proven) => proven,
        step => panic!("{step:?} to a whole proof"),
    };
    assert!(knows_key && !is_changed, "somebody without the key was believed");
    assert_eq!((proven.from, proven.resume, proven.strand), (ProcId(1), expects[0], wanted));
    let has = |strand| proven.has(strand) == (strand == wanted || strand == other);
    assert!(Strand::first(Strand::MAX).all(has));
    let verdict = [Verdict::Accepted, Verdict::Duplicate, Verdict::Gone, Verdict::CannotResume]
        [verdict as usize % 4];
    let mut welcome = proven.welcome(&listener, verdict, expects[1]);
    is_changed |= change(&mut welcome, &changes[3]);
    match ask(&mut asking, &dialer, claim, &welcome, cuts)? {
        AskStep::Welcomed(resume) => assert!(resume == expects[1] && !is_changed),
        step => panic!("{step:?} to a whole welcome"),
    }
    Ok(Some(verdict == Verdict::Accepted))
}

fuzz_target!(|input: Input| {
    match input {
        Input::ToListener { bytes, cuts } => {
            let step =
                answer(&mut Answer::new([5; 32]), &identity(0, 1), &bytes, &mut Cuts::new(cuts));
            assert!(!matches!(step, Ok(AnswerStep::Proven(_))));
        }
        Input::ToDialer { bytes, cuts } => {
            let us = identity(1, 1);
            let (mut side, _) = Ask::new(&us, ProcId(0), [4; 32]);
            let claim = Claim::new(1, Strand::FIRST);
            let step = ask(&mut side, &us, claim, &bytes, &mut Cuts::new(cuts));
            assert!(matches!(step, Err(_) | Ok(AskStep::More)));
        }
        Input::Between { knows_key, verdict, expects, strands, changes, cuts } => {
            match between(knows_key, verdict, expects, strands, &changes, &mut Cuts::new(cuts)) {
                Ok(accepted) => assert_eq!(accepted, Some(true)),
                Err(error) => drop(error.to_string()),
            }
        }
    }
});
